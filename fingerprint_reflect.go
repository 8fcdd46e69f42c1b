package everonce

import (
	"encoding/json"
	"reflect"
	"time"
)

var timeType = reflect.TypeFor[time.Time]()

// appendReflected hashes a named type as its underlying one, and the rest as JSON. A type that says
// how it is written (a json.Marshaler) is asked.
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
