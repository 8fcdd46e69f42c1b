package httponce

import (
	"maps"
	"net/http"
	"slices"
)

// field is one name of a header and its values, as they stood at some moment. A header that is taken down so
// costs no allocation, where net/http's Clone costs three, as long as each name has one value.
type field struct {
	name string
	one  string    // the value, where there is one
	more *[]string // the values, if there is not exactly one
	// saved says that the field goes into the record, and from which of its values on: those before
	// were another's.
	saved bool
	// removed says that it stood there before, and stands no more.
	removed bool
	from    int32
}

func (f *field) len() int {
	if f.removed {
		return 0
	}
	if f.more == nil {
		return 1
	}
	return len(*f.more)
}

func (f *field) value(i int) string {
	if f.more == nil {
		return f.one
	}
	return (*f.more)[i]
}

func (f *field) is(values []string) bool {
	if f.more == nil {
		return len(values) == 1 && values[0] == f.one
	}
	return slices.Equal(*f.more, values)
}

type fields []field

func (fs fields) taken(h http.Header) fields {
	for name, values := range h {
		f := field{name: name}
		if len(values) == 1 {
			f.one = values[0]
		} else {
			more := slices.Clone(values)
			f.more = &more
		}
		fs = append(fs, f)
	}
	return fs
}

func (fs fields) are(h http.Header) bool {
	if len(fs) != len(h) {
		return false
	}
	for i := range fs {
		values, ok := h[fs[i].name]
		if !ok || !fs[i].is(values) {
			return false
		}
	}
	return true
}

func (fs fields) put(h http.Header) {
	clear(h)
	for i := range fs {
		values := make([]string, fs[i].len())
		for j := range values {
			values[j] = fs[i].value(j)
		}
		h[fs[i].name] = values
	}
}

func (fs fields) named(name string) *field {
	for i := range fs {
		if fs[i].name == name {
			return &fs[i]
		}
	}
	return nil
}

func replaceHeader(h, by http.Header) {
	clear(h)
	maps.Copy(h, by)
}
