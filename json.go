package everonce

import (
	"bytes"
	"encoding"
	"encoding/json"
	"fmt"
	"reflect"
	"unicode/utf8"
)

// marshalJSON is json.Marshal that refuses what JSON would leave out without a word: a struct that exports none of its
// fields, which would come back as zero and be equal to any other. Where the value must come back as it was, it refuses text that is
// not UTF-8 too, which JSON would change.
func marshalJSON(v any, comesBack bool) ([]byte, error) {
	data, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	if bytes.Contains(data, []byte("{}")) || comesBack && bytes.Contains(data, []byte(`\ufffd`)) { // else nothing can be missing
		if rv := reflect.ValueOf(v); rv.IsValid() {
			err = unsaid(rv, comesBack)
		}
	}
	return data, err
}

// unsaid finds what the JSON of a value does not say. The value has a JSON, so it has an end.
func unsaid(v reflect.Value, text bool) error {
	if hasOwnJSON(v) {
		return nil
	}
	switch v.Kind() {
	case reflect.String:
		if text && !utf8.ValidString(v.String()) {
			return fmt.Errorf("a %v is not UTF-8, which JSON would change", v.Type())
		}
	case reflect.Pointer, reflect.Interface:
		if !v.IsNil() {
			return unsaid(v.Elem(), text)
		}
	case reflect.Slice, reflect.Array:
		if v.Type().Elem().Kind() == reflect.Uint8 { // in base64
			return nil
		}
		for i := range v.Len() {
			if err := unsaid(v.Index(i), text); err != nil {
				return err
			}
		}
	case reflect.Map:
		for all := v.MapRange(); all.Next(); {
			if err := unsaid(all.Key(), text); err != nil {
				return err
			}
			if err := unsaid(all.Value(), text); err != nil {
				return err
			}
		}
	case reflect.Struct:
		return unsaidOf(v, text)
	}
	return nil
}

// unsaidOf is unsaid of a struct.
func unsaidOf(v reflect.Value, text bool) error {
	t, said := v.Type(), false
	for i := range t.NumField() {
		switch f := t.Field(i); {
		case f.Anonymous, f.IsExported() && f.Tag.Get("json") == "-": // what is embedded has its fields in this one
			said = true
		case f.IsExported():
			said = true
			if err := unsaid(v.Field(i), text); err != nil {
				return err
			}
		}
	}
	if !said && !v.IsZero() {
		return fmt.Errorf("JSON says nothing of a %v: none of its fields is exported", t)
	}
	return nil
}

var (
	jsonType = reflect.TypeFor[json.Marshaler]()
	textType = reflect.TypeFor[encoding.TextMarshaler]()
)

// hasOwnJSON reports whether a value says itself how it is written, where it stands.
func hasOwnJSON(v reflect.Value) bool {
	t := v.Type()
	if t.Implements(jsonType) || t.Implements(textType) {
		return true
	}
	if !v.CanAddr() {
		return false
	}
	p := reflect.PointerTo(t)
	return p.Implements(jsonType) || p.Implements(textType)
}
