package jsonform

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/everonce/everonce"
)

// pointers is a set of JSON pointers (RFC 6901).
type pointers struct {
	list []string // sorted
	root pointerNode
}

// pointerNode is one place of a document in the tree of all pointers.
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
		return p, fmt.Errorf("%w: Compare.%s has %d pointers, the limit is %d", everonce.ErrInvalidArgument, field, len(p.list), maxPointers)
	}
	if list != nil && len(list) == 0 {
		return p, fmt.Errorf("%w: Compare.%s is empty and not nil: it names no field", everonce.ErrInvalidArgument, field)
	}
	for i, text := range p.list {
		if text == "" || !jsontext.Pointer(text).IsValid() {
			return p, fmt.Errorf("%w: Compare.%s: %q is no JSON pointer to a field (RFC 6901), like \"/order/id\"", everonce.ErrInvalidArgument, field, text)
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

// keep returns the values that the pointers point to: for each pointer that finds a value its number, and the value
// with its length. If no pointer finds a value, it returns the document. The kept values cannot be mistaken for a
// document: they begin with a byte that no JSON begins with.
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

// each calls f for every field of an object, and for every element of an array by its index. v is canonical: it holds
// no white space, and nothing in it can fail to be read. spelled is a field's name as it stands in v.
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
