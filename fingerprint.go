package everonce

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"time"

	"github.com/everonce/everonce/driver"
)

// Fingerprint stands for the parts of a request that must be equal when its key is used again. Alg names what was
// hashed and how; sums of different Alg are not compared. The zero value is no fingerprint.
type Fingerprint driver.Fingerprint

func (Fingerprint) applyCall(c *call) { c.given |= optFingerprint }

// FingerprintOf hashes values by type and length: ("ab", "c") differs from ("a", "bc"), and 1 from "1". Strings,
// byte slices, bools, numbers, time.Time (as an instant), nil, and named types of them are hashed directly;
// anything else as its JSON. Data that the JSON omits is not compared: see oncetest.RoundTrip.
//
// A part without JSON, a non-zero struct without exported fields, or JSON text that is not UTF-8 makes the call fail
// with [ErrInvalidArgument].
func FingerprintOf(parts ...any) Fingerprint {
	var stack [256]byte
	b := stack[:0]
	for _, p := range parts {
		var err error
		if b, err = appendPart(b, p); err != nil {
			return Fingerprint{Alg: badFingerprint}
		}
	}
	return Fingerprint{Alg: "parts/1", Sum: sha256.Sum256(b)}
}

// FingerprintJSON hashes the JSON of v: struct fields in their order, map keys sorted. A json.RawMessage or []byte
// is compacted, and keeps its order of fields and digits. The limits of [FingerprintOf] apply.
func FingerprintJSON(v any) Fingerprint {
	var b []byte
	var err error
	switch raw := v.(type) {
	case json.RawMessage:
		b, err = compactJSON(raw)
	case []byte:
		b, err = compactJSON(raw)
	default:
		b, err = marshalJSON(v)
	}
	if err != nil {
		return Fingerprint{Alg: badFingerprint}
	}
	return Fingerprint{Alg: "json/1", Sum: sha256.Sum256(b)}
}

// badFingerprint marks a fingerprint that could not be computed; a call with it fails.
const badFingerprint = "!"

func validateFingerprint(f driver.Fingerprint) error {
	switch {
	case f.Alg == badFingerprint:
		return fmt.Errorf("%w: a part of the fingerprint has no JSON (see FingerprintOf)", ErrInvalidArgument)
	case f.IsZero():
		return nil
	}
	return driver.CheckName(ErrInvalidArgument, "fingerprint's Alg", f.Alg, driver.MaxFingerprintAlgLen)
}

func compactJSON(raw []byte) ([]byte, error) {
	var buf bytes.Buffer
	err := json.Compact(&buf, raw)
	return buf.Bytes(), err
}

func appendPart(b []byte, p any) ([]byte, error) {
	switch v := p.(type) {
	case nil:
		return append(b, 'z'), nil
	case string:
		return appendBytes(b, 's', v), nil
	case []byte:
		return appendBytes(b, 'b', v), nil
	case bool:
		if v {
			return append(b, 't'), nil
		}
		return append(b, 'f'), nil
	case int:
		return binary.BigEndian.AppendUint64(append(b, 'i'), uint64(v)), nil //nolint:gosec // two's complement on purpose
	case int64:
		return binary.BigEndian.AppendUint64(append(b, 'i'), uint64(v)), nil //nolint:gosec // as above
	case int32:
		return binary.BigEndian.AppendUint64(append(b, 'i'), uint64(int64(v))), nil //nolint:gosec // as above
	case uint64:
		return binary.BigEndian.AppendUint64(append(b, 'u'), v), nil
	case uint32:
		return binary.BigEndian.AppendUint64(append(b, 'u'), uint64(v)), nil
	case float64:
		return binary.BigEndian.AppendUint64(append(b, 'd'), math.Float64bits(v)), nil
	case time.Time:
		b = binary.BigEndian.AppendUint64(append(b, 'T'), uint64(v.Unix()))  //nolint:gosec // two's complement on purpose
		return binary.BigEndian.AppendUint32(b, uint32(v.Nanosecond())), nil //nolint:gosec // below 1e9
	}
	return appendReflected(b, p)
}

func appendBytes[S string | []byte](b []byte, tag byte, s S) []byte {
	b = binary.BigEndian.AppendUint64(append(b, tag), uint64(len(s)))
	return append(b, s...)
}

var timeType = reflect.TypeFor[time.Time]()

// appendReflected hashes a named type as its underlying one, and the rest as JSON. A json.Marshaler is written by
// its own method.
func appendReflected(b []byte, p any) ([]byte, error) {
	if _, ok := p.(json.Marshaler); !ok {
		v := reflect.ValueOf(p)
		switch v.Kind() {
		case reflect.String:
			return appendPart(b, v.String())
		case reflect.Bool:
			return appendPart(b, v.Bool())
		case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
			return appendPart(b, v.Int())
		case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Uintptr:
			return appendPart(b, v.Uint())
		case reflect.Float32, reflect.Float64:
			return appendPart(b, v.Float())
		case reflect.Slice:
			if v.Type().Elem().Kind() == reflect.Uint8 {
				return appendPart(b, v.Bytes())
			}
		case reflect.Struct: // its JSON would be {}, whatever the time
			if v.Type().ConvertibleTo(timeType) {
				return appendPart(b, v.Convert(timeType).Interface())
			}
		}
	}
	j, err := marshalJSON(p)
	if err != nil {
		return nil, err
	}
	return appendBytes(b, 'j', j), nil
}
