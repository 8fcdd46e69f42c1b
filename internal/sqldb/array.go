package sqldb

import (
	"encoding/hex"
	"strconv"
)

// Array writes an array as PostgreSQL reads it from a text, which every client library can send.
type Array struct {
	b     []byte
	value bool // an element is not NULL
}

func (a *Array) next() {
	if len(a.b) == 0 {
		a.b = append(a.b, '{')
	} else {
		a.b = append(a.b, ',')
	}
}

// Text appends a text.
func (a *Array) Text(s string) {
	a.next()
	a.value = true
	a.b = append(a.b, '"')
	for i := range len(s) {
		if s[i] == '"' || s[i] == '\\' {
			a.b = append(a.b, '\\')
		}
		a.b = append(a.b, s[i])
	}
	a.b = append(a.b, '"')
}

// Int appends a number.
func (a *Array) Int(n int64) {
	a.next()
	a.value = true
	a.b = strconv.AppendInt(a.b, n, 10)
}

// Bytes appends bytes: it writes nil as NULL, and an empty value as one.
func (a *Array) Bytes(b []byte) {
	a.next()
	if b == nil {
		a.b = append(a.b, "NULL"...)
		return
	}
	a.value = true
	a.b = append(a.b, `"\\x`...)
	a.b = hex.AppendEncode(a.b, b)
	a.b = append(a.b, '"')
}

// Arg returns the array as an argument, or nil for an array of nothing but NULL.
func (a *Array) Arg() any {
	if !a.value {
		return nil
	}
	return string(append(a.b, '}'))
}
