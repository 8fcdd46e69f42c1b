// Package jsonform hashes the compared part of a JSON text: all of it or some of its fields, in one spelling.
package jsonform

import (
	"crypto/sha256"
	"fmt"
	"runtime"

	"github.com/everonce/everonce"
)

// Form is the part of a text that is compared.
type Form struct {
	only, except pointers
}

// New returns a form that compares only these fields, or all fields except those; without any, it compares the whole
// text. The fields are JSON pointers (RFC 6901). An error wraps [everonce.ErrInvalidArgument] and names
// Compare.JSONOnly or Compare.JSONExcept.
func New(only, except []string) (*Form, error) {
	if len(only) > 0 && len(except) > 0 {
		return nil, fmt.Errorf("%w: Compare: JSONOnly and JSONExcept exclude each other", everonce.ErrInvalidArgument)
	}
	var f Form
	var err error
	if f.only, err = parsePointers("JSONOnly", only); err != nil {
		return nil, err
	}
	f.except, err = parsePointers("JSONExcept", except)
	return &f, err
}

// Pointers returns the pointers, each once and sorted.
func (f *Form) Pointers() (only, except []string) { return f.only.list, f.except.list }

// A canonical form takes memory, mostly up to four times the text's, but some 25 times where one object has very many
// small fields. Of large ones only as many are made at once as there are processors to make them.
const large = 64 << 10

var largeForms = make(chan struct{}, runtime.GOMAXPROCS(0))

// Sum hashes the compared part of a text of size bytes, which read returns. ok is false if the text is not valid JSON;
// an error is read's.
func (f *Form) Sum(size int64, read func() ([]byte, error)) (sum [sha256.Size]byte, ok bool, err error) {
	err = Few(size, func() error {
		raw, err := read()
		if err != nil {
			return err
		}
		var v []byte
		if v, ok = canonical(raw); !ok {
			return nil
		}
		switch {
		case len(f.only.list) > 0:
			v = f.only.keep(v)
		case len(f.except.list) > 0:
			v = f.except.without(v)
		}
		sum = sha256.Sum256(v)
		return nil
	})
	return sum, ok, err
}

// Few calls read, which reads a text of size bytes, and returns its error. For large texts, only as many calls run at
// once as there are processors.
func Few(size int64, read func() error) error {
	if size > large {
		largeForms <- struct{}{}
		defer func() { <-largeForms }()
	}
	return read()
}
