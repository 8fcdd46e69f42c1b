package everonce

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
)

// Codec encodes results. It is used concurrently.
//
// Each result is saved with its codec's name: the result of its method Name, if it has one, otherwise "custom".
// Change the name whenever the encoding changes.
type Codec interface {
	// Marshal encodes v. It must not keep any part of v, nor change or reuse the bytes that it returns. If it fails,
	// the result is elided.
	Marshal(v any) ([]byte, error)
	// Unmarshal decodes into v, a non-nil pointer. It must not keep or change data.
	Unmarshal(data []byte, v any) error
}

// Raw returns the codec for []byte, string, and named types of them.
func Raw() Codec { return rawCodec{} }

type rawCodec struct{}

func (rawCodec) Name() string { return "raw" }

func (rawCodec) Marshal(v any) ([]byte, error) {
	switch v := v.(type) {
	case []byte:
		return append([]byte{}, v...), nil
	case string:
		return []byte(v), nil
	}
	switch rv := reflect.ValueOf(v); {
	case rv.Kind() == reflect.String:
		return []byte(rv.String()), nil
	case isBytes(rv):
		return append([]byte{}, rv.Bytes()...), nil
	}
	return nil, fmt.Errorf("the raw codec takes []byte or string, not %T", v)
}

func (rawCodec) Unmarshal(data []byte, v any) error {
	switch v := v.(type) {
	case *[]byte:
		*v = append([]byte{}, data...)
		return nil
	case *string:
		*v = string(data)
		return nil
	}
	if p := reflect.ValueOf(v); p.Kind() == reflect.Pointer && !p.IsNil() {
		switch rv := p.Elem(); {
		case rv.Kind() == reflect.String:
			rv.SetString(string(data))
			return nil
		case isBytes(rv):
			rv.SetBytes(append([]byte{}, data...))
			return nil
		}
	}
	return fmt.Errorf("the raw codec takes *[]byte or *string, not %T", v)
}

func isBytes(v reflect.Value) bool {
	return v.Kind() == reflect.Slice && v.Type().Elem().Kind() == reflect.Uint8
}

func codecName(c Codec) string {
	if n, ok := c.(interface{ Name() string }); ok {
		return n.Name()
	}
	return "custom"
}

// codecFor returns the codec that wrote a result: the receiver's own, or a built-in one.
func codecFor(name string, own Codec, ownName string) (Codec, bool) {
	switch name {
	case ownName:
		return own, true
	case "json":
		return jsonCodec{}, true
	case "raw":
		return rawCodec{}, true
	}
	return nil, false
}

// JSON returns the default codec, encoding/json. It keeps a json.RawMessage byte for byte.
//
// A duplicate gets what encoding/json reads back, which may be less than was saved: unexported fields, fields that
// share a name, and fields beside an embedded type with a MarshalJSON, such as time.Time, are lost; in an interface an
// int becomes a float64. Test your types with oncetest.RoundTrip.
//
// A result is elided if it has no JSON, is a non-zero struct without exported fields, or has text that is not UTF-8,
// such as the escape \ufffd written by a MarshalJSON.
func JSON() Codec { return jsonCodec{} }

type jsonCodec struct{}

func (jsonCodec) Name() string { return "json" }

// Marshal copies a RawMessage, which encoding/json would compact and escape.
func (jsonCodec) Marshal(v any) ([]byte, error) {
	if raw, ok := v.(json.RawMessage); ok && json.Valid(raw) {
		return bytes.Clone(raw), nil
	}
	return marshalJSON(v)
}

func (jsonCodec) Unmarshal(data []byte, v any) error {
	if raw, ok := v.(*json.RawMessage); ok && raw != nil && json.Valid(data) {
		*raw = bytes.Clone(data)
		return nil
	}
	return json.Unmarshal(data, v)
}

// marshalJSON is json.Marshal, but fails if different values could have the same JSON: a struct without exported
// fields, which is always {}, and text that is not UTF-8.
func marshalJSON(v any) ([]byte, error) {
	data, err := json.Marshal(v)
	switch {
	case err != nil:
		return nil, err
	case string(data) == "{}" && exportsNothing(v):
		return nil, fmt.Errorf("%T has no exported fields, so its JSON would be empty", v)
	case hasReplaced(data):
		return nil, fmt.Errorf("%T has text that is not UTF-8, which JSON would change", v)
	}
	return data, nil
}

// exportsNothing reports whether v is a non-zero struct, or a pointer to one, that has no exported field and no
// MarshalJSON.
func exportsNothing(v any) bool {
	if _, ok := v.(json.Marshaler); ok {
		return false
	}
	s := reflect.Indirect(reflect.ValueOf(v))
	return s.Kind() == reflect.Struct && !s.IsZero() && !slices.ContainsFunc(reflect.VisibleFields(s.Type()), reflect.StructField.IsExported)
}

// hasReplaced reports whether encoding/json replaced bytes that are not UTF-8. It writes \ufffd for them, and keeps
// the character U+FFFD unchanged.
func hasReplaced(data []byte) bool {
	escape := []byte(`\ufffd`)
	return bytes.Contains(data, escape) && bytes.Contains(bytes.ReplaceAll(data, []byte(`\\`), nil), escape)
}
