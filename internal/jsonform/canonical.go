package jsonform

import "github.com/go-json-experiment/json/jsontext"

// canonical returns the one spelling of a JSON text, in newly allocated memory: RFC 8785, except that numbers are
// unchanged. RFC 8785 makes floats of them, and so could make two amounts equal. ok is false if the text is not JSON
// with one meaning, or is nested too deeply.
func canonical(raw []byte) (v jsontext.Value, ok bool) {
	if deeper(raw, MaxNesting) {
		return nil, false
	}
	v, err := jsontext.AppendFormat(make([]byte, 0, len(raw)), raw, jsontext.ReorderRawObjects(true),
		jsontext.CanonicalizeRawInts(false), jsontext.CanonicalizeRawFloats(false))
	return v, err == nil
}

// MaxNesting bounds the depth of what is compared as JSON. To bring the fields of an object into order copies all that
// is in them, at every level again: ten thousand levels around a mebibyte would be gigabytes of copying.
const MaxNesting = 128

// deeper reports whether a JSON text has more levels of objects and arrays than limit.
func deeper(raw []byte, limit int) bool {
	depth, quoted := 0, false
	for i := 0; i < len(raw); i++ {
		switch c := raw[i]; {
		case c == '"':
			quoted = !quoted
		case quoted:
			if c == '\\' {
				i++
			}
		case c == '{' || c == '[':
			if depth++; depth > limit {
				return true
			}
		case c == '}' || c == ']':
			depth--
		}
	}
	return false
}
