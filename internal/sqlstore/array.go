package sqlstore

import (
	"encoding/hex"
	"strconv"
)

// array writes an array as PostgreSQL reads it from a text, which every client library can send.
type array struct {
	b     []byte
	value bool // an element is not NULL
}

func (a *array) next() {
	if len(a.b) == 0 {
		a.b = append(a.b, '{')
	} else {
		a.b = append(a.b, ',')
	}
}

func (a *array) text(s string) {
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

func (a *array) number(n int64) {
	a.next()
	a.value = true
	a.b = strconv.AppendInt(a.b, n, 10)
}

// bytes writes nil as NULL, and an empty value as one.
func (a *array) bytes(b []byte) {
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

// arg is nil for an array of nothing but NULL.
func (a *array) arg() any {
	if !a.value {
		return nil
	}
	return string(append(a.b, '}'))
}
