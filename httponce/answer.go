package httponce

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/http"

	"github.com/everonce/everonce"
)

// Answer is what a handler answered, as it is saved.
type Answer struct {
	Status  int
	Header  http.Header
	Body    []byte
	Trailer http.Header
	// Elided: the body was too large to be kept, or had been sent before the record was. Status and headers
	// are as they were sent.
	Elided bool
}

// answerCodec writes an answer: a version, flags, the status, headers, trailers, and the body as it is. Every
// string is preceded by its length.
type answerCodec struct{}

const answerVersion = 1

const flagElided = 1

// errElided makes the core complete an answer as elided: its summary is what is left.
var errElided = errors.New("httponce: the body is not kept")

// Name is what the record remembers.
func (answerCodec) Name() string { return "http/1" }

// Marshal encodes an Answer.
func (answerCodec) Marshal(v any) ([]byte, error) {
	a, ok := v.(Answer)
	switch {
	case !ok:
		return nil, fmt.Errorf("httponce: %T is no Answer", v)
	case a.Elided:
		return nil, errElided
	}
	return a.encode(), nil
}

// Unmarshal decodes into an *Answer.
func (answerCodec) Unmarshal(data []byte, v any) error {
	a, ok := v.(*Answer)
	if !ok {
		return fmt.Errorf("httponce: %T is no *Answer", v)
	}
	return a.decode(data)
}

func (a Answer) encode() []byte {
	b := make([]byte, 0, 64+len(a.Body)+headerSize(a.Header)+headerSize(a.Trailer))
	flags := byte(0)
	if a.Elided {
		flags |= flagElided
	}
	b = append(b, answerVersion, flags)
	b = binary.AppendUvarint(b, uint64(a.Status)) //nolint:gosec // three digits
	b = appendHeader(b, a.Header)
	b = appendHeader(b, a.Trailer)
	return append(b, a.Body...)
}

// summary is what outlives the answer: all but the body, and of the headers only Location and
// Content-Type where there is no place for all.
func (a Answer) summary() []byte {
	a.Body, a.Trailer, a.Elided = nil, nil, true
	b := a.encode()
	if len(b) <= everonce.MaxSummaryLen {
		return b
	}
	few := http.Header{}
	for _, name := range []string{"Location", "Content-Type"} {
		if v, ok := a.Header[name]; ok {
			few[name] = v
		}
	}
	a.Header = few
	if b = a.encode(); len(b) <= everonce.MaxSummaryLen {
		return b
	}
	a.Header = nil
	return a.encode()
}

func headerSize(h http.Header) (n int) {
	for name, values := range h {
		n += len(name) + 4
		for _, v := range values {
			n += len(v) + 2
		}
	}
	return n
}

func appendHeader(b []byte, h http.Header) []byte {
	b = binary.AppendUvarint(b, uint64(len(h)))
	for name, values := range h {
		b = appendText(b, name)
		b = binary.AppendUvarint(b, uint64(len(values)))
		for _, v := range values {
			b = appendText(b, v)
		}
	}
	return b
}

func appendText(b []byte, s string) []byte {
	b = binary.AppendUvarint(b, uint64(len(s)))
	return append(b, s...)
}

func (a *Answer) decode(data []byte) error {
	if len(data) < 2 || data[0] != answerVersion {
		return errors.New("httponce: the saved answer is of a version that this program does not read")
	}
	d := decoder{rest: data[2:]}
	*a = Answer{Elided: data[1]&flagElided != 0}
	a.Status = int(d.number()) //nolint:gosec // checked below
	a.Header = d.header()
	a.Trailer = d.header()
	if d.bad || a.Status < 200 || a.Status > 999 {
		return errors.New("httponce: the saved answer is damaged")
	}
	if len(d.rest) > 0 {
		a.Body = append([]byte(nil), d.rest...)
	}
	return nil
}

type decoder struct {
	rest []byte
	bad  bool
}

func (d *decoder) number() uint64 {
	n, size := binary.Uvarint(d.rest)
	if size <= 0 || n > uint64(len(d.rest)) && n > 999 {
		d.bad = true
		return 0
	}
	d.rest = d.rest[size:]
	return n
}

func (d *decoder) text() string {
	n := d.number()
	if n > uint64(len(d.rest)) {
		d.bad = true
		return ""
	}
	s := string(d.rest[:n])
	d.rest = d.rest[n:]
	return s
}

func (d *decoder) header() http.Header {
	n := d.number()
	if n == 0 || d.bad {
		return nil
	}
	h := make(http.Header, min(n, 64))
	for range n {
		name := d.text()
		values := make([]string, 0, 1)
		for range d.number() {
			values = append(values, d.text())
			if d.bad {
				return nil
			}
		}
		if d.bad {
			return nil
		}
		h[name] = values
	}
	return h
}
