package httponce

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"

	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/httponce/internal/wire"
)

// Answer is a saved answer. A reconciler that knows the answer of a request returns one: see [Route.Reconcile].
type Answer struct {
	Status int         // 0 is 200
	Header http.Header // a wrong Content-Length is left out
	Body   []byte
	// Trailer is sent after the body.
	Trailer http.Header
	// Elided means that the body was too large to be kept, or was sent before the record was written.
	Elided bool

	// saved stands for Header, Body and Trailer where it is set: the answer as it was recorded, or is to be.
	saved *savedAnswer
}

// normalize sets the status of an answer that somebody made without one, 200, and leaves a Content-Length out that is
// not the body's: no client could read such an answer to its end.
func (a *Answer) normalize() {
	if a.Status == 0 {
		a.Status = http.StatusOK
	}
	if _, declared := a.Header["Content-Length"]; declared && a.Header.Get("Content-Length") != strconv.Itoa(len(a.Body)) {
		a.Header = a.Header.Clone() // the caller's is unchanged
		a.Header.Del("Content-Length")
	}
}

func (a *Answer) hasStatus() bool { return a.Status >= http.StatusOK && a.Status <= maxStatus }

// answerCodec is the core's codec for answers.
type answerCodec struct{}

// errElided makes the core complete an answer as elided: its summary is what is left.
var errElided = errors.New("httponce: the body is not kept")

func (answerCodec) Name() string { return "http/1" }

func (answerCodec) Marshal(v any) ([]byte, error) {
	a, ok := v.(Answer)
	a.normalize()
	switch {
	case !ok:
		return nil, fmt.Errorf("httponce: %T is not an Answer", v)
	case a.Elided:
		return nil, errElided
	case !a.hasStatus():
		return nil, fmt.Errorf("httponce: %d is not the status of an answer", a.Status)
	}
	return a.encode(), nil
}

func (answerCodec) Unmarshal(data []byte, v any) error {
	a, ok := v.(*Answer)
	if !ok {
		return fmt.Errorf("httponce: %T is not an *Answer", v)
	}
	return a.decode(data)
}

// summary is what outlives the answer: all but the body and the trailers, and of the headers only Location and
// Content-Type where there is no room for all.
func (a Answer) summary() []byte {
	a.normalize()
	if s := a.saved; s != nil && s.head <= driver.MaxSummaryLen {
		return s.summary()
	}
	fs := a.fields()
	for _, only := range [][]string{nil, {"Location", "Content-Type"}, {"Location"}, {}} {
		b := appendHead(nil, flagElided, a.Status, fs, only)
		if len(b) <= driver.MaxSummaryLen {
			return b
		}
	}
	return nil // a status alone always fits
}

func (a *Answer) fields() (fs fields) {
	if a.saved != nil {
		a.saved.each(func(name string, values []string, _ bool) {
			fs = append(fs, field{name: name, more: &values, saved: true})
		})
		return fs
	}
	fs = fs.taken(a.Header)
	if declared := a.declared(); len(declared) > 0 && fs.named("Trailer") == nil {
		fs = append(fs, field{name: "Trailer", more: &declared})
	}
	var all headerFilter
	return all.mark(fs, nil)
}

// declared returns the names of the trailers that net/http needs before it sends the header.
func (a *Answer) declared() (names []string) {
	for name := range a.Trailer {
		if !wire.IsPrefixed(name) && wire.Trails(name) && !wire.NeverSaved[http.CanonicalHeaderKey(name)] {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// encode returns what is saved of an answer that was not recorded from a handler, or what was.
func (a *Answer) encode() []byte {
	if a.saved != nil {
		return a.saved.bytes()
	}
	flags := byte(0)
	if a.Elided {
		flags |= flagElided
	}
	b := appendHead(make([]byte, 0, 64+len(a.Body)), flags, a.Status, a.fields(), nil)
	if a.Elided {
		return b
	}
	b = append(b, a.Body...)
	var trailers fields
	trailers = trailers.taken(a.Trailer)
	var all headerFilter
	return appendFoot(b, all.mark(trailers, nil), nil)
}
