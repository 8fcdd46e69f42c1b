package httponce

import (
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/httponce/internal/wire"
)

// Settlement returns the verdict, for [everonce.Settle] and [everonce.Receiver.Settle], that a request with an unknown
// outcome was done and answered with a. The caller sets Lifetime, By and Force. Duplicates get the answer as if a
// handler had given it: 400 and above is a permanent failure, and headers that are never saved are left out
// ([HeaderPolicy]). With Elided there is no body, and the marker says so.
//
// The error wraps [everonce.ErrInvalidArgument] if the answer could not be sent or kept: a status outside 200 to 599, a
// body with a status that has none or of more than 256 KiB, or an invalid header field.
func (a Answer) Settlement() (everonce.Settlement, error) {
	s := everonce.Settlement{Verdict: everonce.SettleDone}
	a.normalize()
	if err := a.canBeSettled(); err != nil {
		return s, err
	}
	switch {
	case a.Status >= http.StatusBadRequest:
		s.Failure = &everonce.PermanentError{Code: failureCode(a.Status), Detail: a.encode()}
	case a.Elided:
		s.Summary = a.summary()
	default:
		s.Encoded, s.Codec, s.Summary = a.encode(), answerCodec{}.Name(), a.summary()
	}
	return s, nil
}

// canBeSettled checks the answer before it is settled, which cannot be undone.
func (a *Answer) canBeSettled() error {
	invalid := func(format string, args ...any) error {
		return fmt.Errorf("%w: an answer: "+format, append([]any{everonce.ErrInvalidArgument}, args...)...)
	}
	switch {
	case a.Status < firstStatus || a.Status > lastStatus:
		return invalid("its status is %d, not 200 to 599", a.Status)
	case len(a.Body) > 0 && a.Elided:
		return invalid("it is elided, and has a body")
	case len(a.Body) > 0 && !bodyAllowed(a.Status):
		return invalid("a %d has no body", a.Status)
	case len(a.Body) > pieceSize:
		return invalid("its body has %d bytes, the limit is %d; without one, and Elided, status and headers are kept", len(a.Body), pieceSize)
	case a.saved != nil && a.saved.pieces.total != 0:
		return invalid("its body is in separate records")
	}
	for _, fields := range [...]http.Header{a.Header, a.Trailer} {
		for name, values := range fields {
			if !wire.IsToken(strings.TrimPrefix(name, http.TrailerPrefix)) {
				return invalid("%q is not the name of a header field", name)
			}
			if slices.ContainsFunc(values, func(v string) bool { return strings.ContainsAny(v, "\r\n\x00") }) {
				return invalid("the field %s has a line break in it", name)
			}
		}
	}
	return nil
}
