package everonce

import (
	"fmt"
	"reflect"
)

// Codec turns results into bytes and back. It is used concurrently.
//
// Each result is saved with the name of its codec: what its method Name returns, if it has one, otherwise "custom".
// Give a codec of your own a name before you ever change it.
type Codec interface {
	// Marshal encodes v. It must not change or reuse the bytes that it returns, because a store may keep them as they
	// are, and must not keep any part of v, which the caller gets and may change. If it fails, the result is elided;
	// the call does not fail.
	Marshal(v any) ([]byte, error)
	// Unmarshal decodes into v, a non-nil pointer. It must not keep or change data.
	Unmarshal(data []byte, v any) error
}

// Raw returns the codec for results that already are bytes: []byte, string, or a named type of them. A replay costs
// one copy.
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
