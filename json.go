package everonce

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"unicode/utf8"
)

// marshalJSON is json.Marshal that refuses what JSON would leave out without a word: the fields of a struct that exports none of
// them, that has the JSON of what it embeds, or in which they clash by their names. It would come back without them, and be equal to
// others. So it does with text that is not UTF-8, of which JSON makes one text. With types it also refuses what is in an interface and
// not of the types that are made of JSON there.
func marshalJSON(v any, types bool) ([]byte, error) {
	data, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	rv := reflect.ValueOf(v)
	switch {
	case !rv.IsValid():
	case mayHide(rv.Type()), bytes.Contains(data, []byte("{}")), bytes.Contains(data, []byte(`\ufffd`)): // else nothing can be missing
		err = unsaid(rv, types)
	}
	return data, err
}

// unsaid finds what the JSON of a value does not say. The value has a JSON, so it has an end.
func unsaid(v reflect.Value, types bool) error {
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		if v.IsNil() {
			return nil
		}
		if types && v.Kind() == reflect.Interface && !isFree(v) {
			return fmt.Errorf("JSON would not give back a %v in a %v", v.Elem().Type(), v.Type())
		}
		return unsaid(v.Elem(), types)
	}
	if hasOwnJSON(v) {
		if v.Kind() == reflect.Struct && borrowsJSON(v.Type()) && !v.IsZero() {
			return fmt.Errorf("the JSON of a %v is that of what it embeds, and says nothing of its other fields", v.Type())
		}
		return nil
	}
	switch v.Kind() {
	case reflect.String:
		if !utf8.ValidString(v.String()) {
			return fmt.Errorf("a %v is not UTF-8, which JSON would change", v.Type())
		}
	case reflect.Slice, reflect.Array:
		if v.Type().Elem().Kind() == reflect.Uint8 { // in base64
			return nil
		}
		for i := range v.Len() {
			if err := unsaid(v.Index(i), types); err != nil {
				return err
			}
		}
	case reflect.Map:
		for all := v.MapRange(); all.Next(); {
			if err := unsaid(all.Key(), types); err != nil {
				return err
			}
			if err := unsaid(all.Value(), types); err != nil {
				return err
			}
		}
	case reflect.Struct:
		return unsaidOf(v, types)
	}
	return nil
}

// freeTypes are the types of what encoding/json reads into an interface.
var freeTypes = [...]reflect.Type{
	reflect.TypeFor[bool](), reflect.TypeFor[float64](), reflect.TypeFor[string](), reflect.TypeFor[[]any](), reflect.TypeFor[map[string]any](),
}

// isFree reports whether what an interface holds is read back as what it is.
func isFree(v reflect.Value) bool {
	held := v.Elem()
	isNil := (held.Kind() == reflect.Map || held.Kind() == reflect.Slice) && held.IsNil() // it would come back without a type
	return v.NumMethod() == 0 && !isNil && slices.Contains(freeTypes[:], held.Type())
}

// unsaidOf is unsaid of a struct whose fields JSON writes.
func unsaidOf(v reflect.Value, types bool) error {
	t, said := v.Type(), false
	for i := range t.NumField() {
		f, err := t.Field(i), error(nil)
		switch {
		case !isSaid(f):
			said = said || f.IsExported() // it was left out by its tag
			continue
		case isSpread(f):
			if inner := reflect.Indirect(v.Field(i)); inner.IsValid() {
				err = unsaidOf(inner, types)
			}
		default:
			err = unsaid(v.Field(i), types)
		}
		if err != nil {
			return err
		}
		said = true
	}
	if !said && !v.IsZero() {
		return fmt.Errorf("JSON says nothing of a %v: none of its fields is exported", t)
	}
	for _, index := range clashing(t) {
		if f, err := v.FieldByIndexErr(index); err == nil && !f.IsZero() { // an error is of a pointer that is nil
			return fmt.Errorf("JSON says nothing of the field %s of a %v: another has its name", t.FieldByIndex(index).Name, t)
		}
	}
	return nil
}

// isSaid reports whether JSON writes a field of a struct, or the fields of what is embedded there.
func isSaid(f reflect.StructField) bool {
	return f.Tag.Get("json") != "-" && (f.IsExported() || f.Anonymous && pointed(f.Type).Kind() == reflect.Struct)
}

// isSpread reports whether JSON writes the fields of what is embedded as those of the struct around it, whatever JSON it has
// of its own.
func isSpread(f reflect.StructField) bool {
	_, tagged := nameOf(f)
	return f.Anonymous && !tagged && pointed(f.Type).Kind() == reflect.Struct
}

// nameOf returns the name under which JSON writes a field, and whether it is that of a tag.
func nameOf(f reflect.StructField) (name string, tagged bool) {
	if name, _, _ = strings.Cut(f.Tag.Get("json"), ","); name != "" {
		return name, true
	}
	return f.Name, false
}

// pointed returns what a pointer's type points to, and every other type as it is.
func pointed(t reflect.Type) reflect.Type {
	if t.Kind() == reflect.Pointer {
		return t.Elem()
	}
	return t
}
