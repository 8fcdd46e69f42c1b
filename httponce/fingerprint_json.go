package httponce

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"mime"
	"net/http"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/everonce/everonce"
)

// jsonForm is what counts of a JSON body.
type jsonForm struct {
	only, except pointers
}

func (f Fingerprint) jsonForm() (*jsonForm, error) {
	if !f.JSON && f.JSONOnly == nil && f.JSONExcept == nil {
		return nil, nil
	}
	if len(f.JSONOnly) > 0 && len(f.JSONExcept) > 0 {
		return nil, fmt.Errorf("%w: Fingerprint: JSONOnly and JSONExcept exclude each other", everonce.ErrInvalidArgument)
	}
	var form jsonForm
	var err error
	if form.only, err = parsePointers("JSONOnly", f.JSONOnly); err != nil {
		return nil, err
	}
	form.except, err = parsePointers("JSONExcept", f.JSONExcept)
	return &form, err
}

// isJSON reports whether a request says that its body is JSON.
func isJSON(h http.Header) bool {
	values := h["Content-Type"]
	if len(values) != 1 {
		return false
	}
	if values[0] == "application/json" {
		return true
	}
	media, params, err := mime.ParseMediaType(values[0])
	if err != nil || media != "application/json" && !strings.HasSuffix(media, "+json") {
		return false
	}
	charset, ok := params["charset"]
	return !ok || strings.EqualFold(charset, "utf-8") || strings.EqualFold(charset, "us-ascii")
}

// A canonical form takes memory, mostly up to four times the body's, but some 25 times where one object has very many
// small fields. Of large ones only as many are made at once as there are processors to make them.
const largeJSON = 64 << 10

var largeForms = make(chan struct{}, runtime.GOMAXPROCS(0))

// sum hashes what counts of a body. ok is false where it is not valid JSON.
func (f *jsonForm) sum(body *body) (sum [sha256.Size]byte, ok bool, err error) {
	if body.size > largeJSON {
		largeForms <- struct{}{}
		defer func() { <-largeForms }()
	}
	raw, err := body.bytes()
	if err != nil {
		return sum, false, err
	}
	v, ok := canonical(raw)
	if !ok {
		return sum, false, nil
	}
	switch {
	case len(f.only.list) > 0:
		v = f.only.keep(v)
	case len(f.except.list) > 0:
		v = f.except.without(v)
	}
	return sha256.Sum256(v), true, nil
}

// canonical returns the one spelling of a JSON text, in memory of its own: RFC 8785, but for numbers, which stay as they are.
// RFC 8785 makes floats of them, and so of two amounts one. ok is false where it is no JSON that has one meaning, or
// is nested too deeply.
func canonical(raw []byte) (v jsontext.Value, ok bool) {
	if deeper(raw, maxNesting) {
		return nil, false
	}
	v, err := jsontext.AppendFormat(make([]byte, 0, len(raw)), raw, jsontext.ReorderRawObjects(true),
		jsontext.CanonicalizeRawInts(false), jsontext.CanonicalizeRawFloats(false))
	return v, err == nil
}

// maxNesting bounds the depth of what is compared as JSON. To bring the fields of an object into order copies all that
// is in them, at every level again: ten thousand levels around a mebibyte would be gigabytes of copying.
const maxNesting = 128

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

// pointers is a set of JSON pointers (RFC 6901).
type pointers struct {
	list []string // sorted
	root pointerNode
}

// pointerNode is what the pointers say of one place of a document.
type pointerNode struct {
	end  int // the number of the pointer that points here, from 1
	down map[string]*pointerNode
}

// nowhere is a place that no pointer goes to.
var nowhere pointerNode

const maxPointers = 256

func parsePointers(field string, list []string) (pointers, error) {
	p := pointers{list: slices.Clone(list)}
	slices.Sort(p.list)
	p.list = slices.Compact(p.list)
	if len(p.list) > maxPointers {
		return p, fmt.Errorf("%w: Fingerprint.%s has %d pointers, the limit is %d", everonce.ErrInvalidArgument, field, len(p.list), maxPointers)
	}
	if list != nil && len(list) == 0 {
		return p, fmt.Errorf("%w: Fingerprint.%s is empty and not nil: it names no field", everonce.ErrInvalidArgument, field)
	}
	for i, text := range p.list {
		if text == "" || !jsontext.Pointer(text).IsValid() {
			return p, fmt.Errorf("%w: Fingerprint.%s: %q is no JSON pointer to a field (RFC 6901), like \"/order/id\"", everonce.ErrInvalidArgument, field, text)
		}
		at := &p.root
		for token := range jsontext.Pointer(text).Tokens() {
			next := at.down[token]
			if next == nil {
				next = &pointerNode{}
				if at.down == nil {
					at.down = map[string]*pointerNode{}
				}
				at.down[token] = next
			}
			at = next
		}
		at.end = i + 1
	}
	return p, nil
}

// keep returns what the pointers point to: for each that finds something its number, and the value with its
// length. Where none does it returns the document. What is kept cannot be taken for a document: it begins with a byte
// that no JSON begins with.
func (p *pointers) keep(doc jsontext.Value) jsontext.Value {
	kept := p.root.appendKept([]byte{0}, doc)
	if len(kept) == 1 {
		return doc
	}
	return kept
}

func (n *pointerNode) appendKept(b []byte, v jsontext.Value) []byte {
	if n.end > 0 {
		b = binary.AppendUvarint(b, uint64(n.end))
		b = binary.AppendUvarint(b, uint64(len(v)))
		b = append(b, v...)
	}
	if len(n.down) == 0 {
		return b
	}
	each(v, func(name string, _, value jsontext.Value) {
		if next := n.down[name]; next != nil {
			b = next.appendKept(b, value)
		}
	})
	return b
}

// without returns the document less what the pointers point to.
func (p *pointers) without(doc jsontext.Value) jsontext.Value {
	return p.root.appendRest(make([]byte, 0, len(doc)), doc)
}

func (n *pointerNode) appendRest(b []byte, v jsontext.Value) []byte {
	kind := v.Kind()
	if len(n.down) == 0 || kind != '{' && kind != '[' {
		return append(b, v...)
	}
	b = append(b, v[0])
	first := true
	each(v, func(name string, spelled, value jsontext.Value) {
		next := n.down[name]
		if next != nil && next.end > 0 {
			return
		}
		if !first {
			b = append(b, ',')
		}
		first = false
		if kind == '{' {
			b = append(append(b, spelled...), ':')
		}
		if next == nil {
			next = &nowhere
		}
		b = next.appendRest(b, value)
	})
	return append(b, v[len(v)-1])
}

// each calls f for every field of an object, and for every element of an array by its index. v is canonical: it holds no
// white space, and nothing in it can fail to be read. spelled is a field's name as it stands in v.
func each(v jsontext.Value, f func(name string, spelled, value jsontext.Value)) {
	kind := v.Kind()
	if kind != '{' && kind != '[' {
		return
	}
	d := jsontext.NewDecoder(bytes.NewBuffer(v), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true)) // checked before
	if _, err := d.ReadToken(); err != nil {
		return
	}
	for i := 0; d.PeekKind() != '}' && d.PeekKind() != ']'; i++ {
		name, spelled := strconv.Itoa(i), jsontext.Value(nil)
		if kind == '{' {
			quoted, err := d.ReadValue()
			if err != nil {
				return
			}
			plain, err := jsontext.AppendUnquote(nil, quoted)
			if err != nil {
				return
			}
			name, spelled = string(plain), v[d.InputOffset()-int64(len(quoted)):d.InputOffset()]
		}
		value, err := d.ReadValue()
		if err != nil {
			return
		}
		f(name, spelled, v[d.InputOffset()-int64(len(value)):d.InputOffset()])
	}
}
