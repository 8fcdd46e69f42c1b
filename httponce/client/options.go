package client

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/textproto"
	"net/url"
	"slices"
	"time"

	"github.com/everonce/everonce/httponce/internal/wire"
)

// Options configure a [Transport]. The zero value of each field means its default.
type Options struct {
	// KeyHeader is the request header with the key. Default Idempotency-Key.
	KeyHeader string
	// Marker is the response header by which a server marks replayed answers. Default Idempotent-Replayed.
	Marker string
	// Methods are the methods whose requests are operations. Default POST and PATCH.
	Methods []string
	// KeyFunc returns the key of a request that has neither the header nor a key by [WithKey]. It is called once per
	// operation, and must not change the request or read its body. An empty key is refused. Default: a random key for
	// each call of RoundTrip.
	KeyFunc func(*http.Request) (string, error)
	// RawKey sends the key unquoted instead of as a quoted string, for servers that accept nothing else. To a server that
	// does not know the quoted spelling, the two are different keys: do not change this while operations are under way.
	// Default false.
	RawKey bool

	// MaxAttempts is how often a request is sent, including the first time. 1 also accepts bodies that cannot be sent
	// twice. Unless it is 1, a [Session] does not count attempts that found another request of the session, or a copy,
	// being executed. Default 10.
	MaxAttempts int
	// MaxElapsed bounds attempts, pauses and redirects together. If a pause would exceed it, or the deadline of the
	// request's context, the last answer is returned at once. Negative means no bound. Default 2 min.
	MaxElapsed time.Duration
	// AttemptTimeout bounds one attempt, up to the header of its answer, and the body if that is buffered. Make it
	// longer than the server's slowest answer, including the upload. Negative means no bound. Default 30 s.
	AttemptTimeout time.Duration
	// Backoff is the longest pause after the first attempt. It doubles with each further attempt, and each pause is a
	// random part of it. Default 100 ms.
	Backoff time.Duration
	// MaxBackoff is the longest pause, except for a longer Retry-After. Default 10 s.
	MaxBackoff time.Duration

	// RetryStatuses are the statuses after which a request is sent again. A 409 that means "in progress", or has a
	// Retry-After, is always one; an answer marked as replayed never is. Default [DefaultRetryStatuses].
	RetryStatuses []int
	// RetryIf decides whether another attempt is made, within the limits. It gets the answer, whose body it must not
	// read, or the error, or both if the answer was cut off, and what the transport would do. It may be called twice for
	// one attempt: before the answer is read, and after it was cut off. Default none.
	RetryIf func(resp *http.Response, err error, retry bool) bool
	// OnRetry is called for every attempt that is followed by another, before the pause, in the caller's goroutine.
	// Default none.
	OnRetry func(context.Context, Retry)

	// BufferRequest is the largest body without GetBody, in bytes, that is read into memory before the first attempt. A
	// larger one is refused with [ErrBodyNotRepeatable]. Default 0: every such body is refused.
	BufferRequest int64
	// BufferAnswer is how many bytes of an answer are read before it is returned, so that it can be asked for again if
	// it is cut off. A larger answer, and one that is a stream by its Content-Type, is passed on as it arrives; the
	// caller must check that it is complete. Negative means none. Default 1 MiB.
	BufferAnswer int64
	// FollowTo allows the key to follow a redirect from one origin to another. Default: only within the same host and
	// port, or from http to https of one host.
	FollowTo func(from, to *url.URL) bool
}

// Retry describes an attempt that is followed by another, for Options.OnRetry.
type Retry struct {
	// Request is the caller's request. It must not be changed.
	Request *http.Request
	// Attempt is the number of the attempt, from 1.
	Attempt int
	// Status is the status of the answer; 0 without one.
	Status int
	// Err is the error; nil if there was a complete answer.
	Err error
	// Pause is the time until the next attempt.
	Pause time.Duration
}

// DefaultRetryStatuses returns the statuses after which a [Transport] sends a request again by default. Each means
// something that may pass; with a key, asking again is safe whether the effect happened or not.
//
//	408, 425, 429  the server did not process the request
//	502, 504       something in between lost the server, or its answer
//	503            the server is not available
//
// 500 is the application's own answer, which a server may have saved, so a repetition cannot change it. 400, 401, 403,
// 404, 410, 412 and 422 would be the same again.
func DefaultRetryStatuses() []int {
	return []int{
		http.StatusRequestTimeout, http.StatusTooEarly, http.StatusTooManyRequests,
		http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout,
	}
}

const (
	defaultBuffer = 1 << 20
	mostBackoff   = 24 * time.Hour
	mostBuffered  = 1 << 40
)

func settingsOf(opts *Options) (Options, error) {
	var s Options
	if opts != nil {
		s = *opts
	}
	s.KeyHeader = textproto.CanonicalMIMEHeaderKey(cmp.Or(s.KeyHeader, wire.DefaultKeyHeader))
	s.Marker = cmp.Or(s.Marker, wire.DefaultMarker)
	s.Methods = slices.Clone(s.Methods)
	if s.Methods == nil {
		s.Methods = []string{http.MethodPost, http.MethodPatch}
	}
	s.RetryStatuses = slices.Clone(s.RetryStatuses)
	if s.RetryStatuses == nil {
		s.RetryStatuses = DefaultRetryStatuses()
	}
	s.MaxAttempts = cmp.Or(s.MaxAttempts, 10)
	s.MaxElapsed = cmp.Or(s.MaxElapsed, 2*time.Minute)
	s.AttemptTimeout = cmp.Or(s.AttemptTimeout, 30*time.Second)
	s.Backoff = cmp.Or(s.Backoff, 100*time.Millisecond)
	s.MaxBackoff = cmp.Or(s.MaxBackoff, max(10*time.Second, s.Backoff))
	s.BufferAnswer = cmp.Or(s.BufferAnswer, defaultBuffer)
	return s, s.check()
}

func (s *Options) check() error {
	if err := wire.CheckKeyHeader(s.KeyHeader); err != nil {
		return invalid("%w", err)
	}
	for _, m := range s.Methods {
		if !wire.IsToken(m) {
			return invalid("Methods contains %q, which is not a method", m)
		}
	}
	for _, code := range s.RetryStatuses {
		if code < 400 || code > 599 {
			return invalid("RetryStatuses contains %d, not 400 to 599", code)
		}
	}
	switch {
	case !wire.IsToken(s.Marker):
		return invalid("Marker is not the name of a header")
	case s.MaxAttempts < 0:
		return invalid("MaxAttempts is negative (%d); 1 is a single attempt", s.MaxAttempts)
	case s.Backoff < 0 || s.Backoff > mostBackoff:
		return invalid("Backoff is %v, not 0 to %v", s.Backoff, mostBackoff)
	case s.MaxBackoff < s.Backoff || s.MaxBackoff > mostBackoff:
		return invalid("MaxBackoff is %v, not Backoff (%v) to %v", s.MaxBackoff, s.Backoff, mostBackoff)
	case s.BufferRequest < 0 || s.BufferRequest > mostBuffered:
		return invalid("BufferRequest is %d, not 0 to %d bytes", s.BufferRequest, int64(mostBuffered))
	case s.BufferAnswer > mostBuffered:
		return invalid("BufferAnswer is %d, the most is %d bytes", s.BufferAnswer, int64(mostBuffered))
	}
	return nil
}

func invalid(format string, args ...any) error {
	return fmt.Errorf("client: Options."+format, args...)
}
