package oncetest

import (
	"encoding"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/everonce/everonce"
)

// RoundTrip checks that results of type T survive the codec: each value is encoded and decoded as [everonce.Do]
// does for a duplicate, and the test fails for each part that comes back different. The parts are named, with what
// went in and what came back. If codec is nil, it is [everonce.JSON].
//
// Values are compared as by [reflect.DeepEqual], unexported fields included. A type that encodes itself and has a
// method Equal, such as time.Time, is compared by that method.
//
// Fill every field, and give one value for each type that an interface may hold: the loss of a zero value does not
// show. A field with the tag json:"-" is reported too, because a duplicate does not get it; leave it zero if that
// is meant.
//
// Values of a type that survives have different JSON if they differ, so [everonce.FingerprintOf] tells them apart.
func RoundTrip[T any](tb testing.TB, codec everonce.Codec, values ...T) {
	tb.Helper()
	if codec == nil {
		codec = everonce.JSON()
	}
	if len(values) == 0 {
		tb.Errorf("oncetest: RoundTrip needs a value to test")
	}
	t := reflect.TypeFor[T]()
	for _, v := range values {
		data, err := codec.Marshal(v)
		if err != nil {
			tb.Errorf("oncetest: a result of type %v cannot be encoded (a duplicate gets ErrResultElided): %v", t, err)
			continue
		}
		var back T
		if err := codec.Unmarshal(data, &back); err != nil {
			tb.Errorf("oncetest: a result of type %v cannot be decoded (a duplicate gets ErrUndecodable): %v\nencoded: %#q", t, err, data)
			continue
		}
		d := differ{seen: make(map[visit]bool)}
		d.compare("value", reflect.ValueOf(&v).Elem(), reflect.ValueOf(&back).Elem())
		if len(d.lines) > maxDifferences {
			d.lines = append(d.lines[:maxDifferences], fmt.Sprintf("and %d more", len(d.lines)-maxDifferences))
		}
		if len(d.lines) > 0 {
			tb.Errorf("oncetest: a result of type %v comes back different:\n\t%s\nencoded: %#q", t, strings.Join(d.lines, "\n\t"), data)
		}
	}
}

const (
	maxDifferences = 20  // shown of one value
	maxShown       = 200 // characters of a part
)

// differ collects the differences of two values. The values are addressable, so that it can read unexported fields.
type differ struct {
	lines []string
	seen  map[visit]bool
}

// visit is a pair of pointers, which may lead back to themselves.
type visit struct {
	in, back uintptr
	t        reflect.Type
}

func (d *differ) add(path string, in, back reflect.Value) {
	typed := in.IsValid() && back.IsValid() && in.Type() != back.Type()
	d.lines = append(d.lines, fmt.Sprintf("%s: %s became %s", path, show(in, typed), show(back, typed)))
}

func (d *differ) compare(path string, in, back reflect.Value) {
	if in.Type() != back.Type() {
		d.add(path, in, back)
		return
	}
	if equal, ok := ownEqual(in, back); ok {
		if !equal {
			d.add(path, in, back)
		}
		return
	}
	switch in.Kind() {
	case reflect.Pointer, reflect.Interface:
		d.compareElem(path, in, back)
	case reflect.Struct:
		for i := range in.NumField() {
			d.compare(path+"."+in.Type().Field(i).Name, field(in, i), field(back, i))
		}
	case reflect.Slice, reflect.Array:
		d.compareList(path, in, back)
	case reflect.Map:
		d.compareMap(path, in, back)
	default:
		if !reflect.DeepEqual(in.Interface(), back.Interface()) {
			d.add(path, in, back)
		}
	}
}

func (d *differ) compareElem(path string, in, back reflect.Value) {
	if in.IsNil() || back.IsNil() {
		if in.IsNil() != back.IsNil() {
			d.add(path, in, back)
		}
		return
	}
	if in.Kind() == reflect.Pointer {
		v := visit{in.Pointer(), back.Pointer(), in.Type()}
		if d.seen[v] {
			return
		}
		d.seen[v] = true
	}
	d.compare(path, addressable(in.Elem()), addressable(back.Elem()))
}

func (d *differ) compareList(path string, in, back reflect.Value) {
	if in.Len() != back.Len() || in.Kind() == reflect.Slice && in.IsNil() != back.IsNil() {
		d.add(path, in, back)
		return
	}
	for i := range in.Len() {
		d.compare(fmt.Sprintf("%s[%d]", path, i), in.Index(i), back.Index(i))
	}
}

func (d *differ) compareMap(path string, in, back reflect.Value) {
	if in.Len() != back.Len() || in.IsNil() != back.IsNil() {
		d.add(path, in, back)
		return
	}
	for all := in.MapRange(); all.Next(); {
		at := fmt.Sprintf("%s[%#v]", path, all.Key())
		if b := back.MapIndex(all.Key()); b.IsValid() {
			d.compare(at, addressable(all.Value()), addressable(b))
		} else {
			d.add(at, all.Value(), b)
		}
	}
}

// field returns a field of an addressable struct, whether it is exported or not.
func field(v reflect.Value, i int) reflect.Value {
	f := v.Field(i)
	return reflect.NewAt(f.Type(), f.Addr().UnsafePointer()).Elem()
}

func addressable(v reflect.Value) reflect.Value {
	if v.CanAddr() {
		return v
	}
	c := reflect.New(v.Type()).Elem()
	c.Set(v)
	return c
}

// ownEqual compares values of a type that encodes itself by its method Equal, if it has one for its own type.
func ownEqual(in, back reflect.Value) (equal, ok bool) {
	if in.Kind() == reflect.Pointer || in.Kind() == reflect.Interface { // what they hold is asked
		return false, false
	}
	switch in.Addr().Interface().(type) {
	case json.Marshaler, encoding.TextMarshaler:
	default:
		return false, false
	}
	m := in.MethodByName("Equal")
	if !m.IsValid() || m.Type() != reflect.FuncOf([]reflect.Type{in.Type()}, []reflect.Type{reflect.TypeFor[bool]()}, false) {
		return false, false
	}
	return m.Call([]reflect.Value{back})[0].Bool(), true
}

// show returns a part as Go writes it, with its type if that is what differs.
func show(v reflect.Value, typed bool) string {
	for v.IsValid() && (v.Kind() == reflect.Pointer || v.Kind() == reflect.Interface) {
		v = v.Elem()
	}
	if !v.IsValid() {
		return "nil"
	}
	s := []rune(fmt.Sprintf("%#v", v))
	if len(s) > maxShown {
		s = append(s[:maxShown], '…')
	}
	switch v.Kind() { // %#v says the type of the others
	case reflect.Struct, reflect.Map, reflect.Slice, reflect.Array:
		return string(s)
	}
	if typed {
		return v.Type().String() + " " + string(s)
	}
	return string(s)
}
