package client

import (
	"context"
	"fmt"
	"net/http"
	"net/textproto"
	"net/url"
	"slices"
	"time"

	"github.com/everonce/everonce/httponce/internal/wire"
)

// Options are the options of a [Transport]. The zero value of each field is its default.
type Options struct {
	// KeyHeader is the request header that carries the key: the server's [Options.KeyHeader]. Default
	// Idempotency-Key.
	KeyHeader string
	// Marker is the response header that marks what is not sent for the first time: the server's [Options.Marker].
	// Default Idempotent-Replayed.
	Marker string
	// Methods are the methods whose requests are operations; all others pass untouched. Default POST and PATCH.
	Methods []string
	// KeyFunc returns the key of a request that has neither the header nor a key by [WithKey], derived from its path,
	// say. It must not change the request or read its body. It is called for every such request, once per operation;
	// an empty key is refused. Default: a random key for each call of RoundTrip.
	KeyFunc func(*http.Request) (string, error)
	// RawKey sends the key as it is instead of as a quoted string, for servers that accept nothing else. A server
	// that does not know the quoted spelling sees two keys: do not change this while operations are under way.
	// Default false.
	RawKey bool

	// MaxAttempts is how often a request is sent, including the first time. With one attempt, a body that cannot be
	// repeated is no obstacle. Default 10.
	MaxAttempts int
	// MaxElapsed bounds everything together: attempts, pauses and redirects, until there is an answer. If a pause
	// would outlast it, or the deadline of the request's context, the last answer is returned at once. Negative is no
	// bound. Default 2 min.
	MaxElapsed time.Duration
	// AttemptTimeout bounds one attempt, until the header of its answer has arrived, and its body if that is
	// buffered. Make it longer than the server's slowest answer takes, including uploads. Negative is no bound.
	// Default 30 s.
	AttemptTimeout time.Duration
	// Backoff is the longest pause after the first attempt; it doubles with each further one. Each pause is a random
	// part of it. Default 100 ms.
	Backoff time.Duration
	// MaxBackoff is the longest pause. A server's Retry-After may be longer, and is obeyed. Default 10 s.
	MaxBackoff time.Duration

	// RetryStatuses are the statuses after which the same request is sent again. A 409 that says "in progress", or has a
	// Retry-After, is one too, listed or not; answers that are marked as replayed never are. Default
	// [DefaultRetryStatuses].
	RetryStatuses []int
	// RetryIf has the last word on whether another attempt is made, as far as the limits allow one. It gets the
	// answer, whose body it must not read, or the error, or both if an answer was cut off, and what the transport
	// would do. It may be called twice for one attempt: before the answer is read, and after it was cut off. Default
	// none.
	RetryIf func(resp *http.Response, err error, retry bool) bool
	// OnRetry is called for every attempt that is followed by another, before the pause, in the caller's goroutine.
	// Default none.
	OnRetry func(context.Context, Retry)

	// BufferRequest is up to how many bytes of a body that cannot be repeated are read into memory before the first
	// attempt. A larger body is refused with [ErrBodyNotRepeatable]. Default 0: every such body is refused.
	BufferRequest int64
	// BufferAnswer is up to how many bytes of an answer are read before it is returned, so that it is asked for again
	// if it is cut off. A larger answer, and one that is a stream by its Content-Type, is passed on as it arrives,
	// and the caller must check that it is complete. Negative is none. Default 1 MiB.
	BufferAnswer int64
	// FollowTo allows the key of an operation to follow a redirect from one origin to another. Default: only within
	// the same host and port, or from http to https of one host.
	FollowTo func(from, to *url.URL) bool
}

// Retry is what Options.OnRetry is told.
type Retry struct {
	// Request is the request as the caller made it. It must not be changed.
	Request *http.Request
	// Attempt is the number of the attempt that failed, from 1.
	Attempt int
	// Status is the status of the answer; 0 if there was none.
	Status int
	// Err is the error; nil if there was an answer that was not cut off.
	Err error
	// Pause is how long it is until the next attempt.
	Pause time.Duration
}

// DefaultRetryStatuses returns the statuses after which a [Transport] sends the same request again. Each says that
// something may pass; with a key, asking again is safe whether the effect happened or not.
//
//	408, 425, 429  the server did not take up the request
//	502, 504       something in between lost the server, or its answer
//	503            the server is not available
//
// 500 is not among them: it is the application's own answer, which a server may have saved, and repeating the request
// cannot change it. Nor are 400, 401, 403, 404, 410, 412 and 422: they would be the same again.
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

// settingsOf returns the options with their defaults in place, and checked.
func settingsOf(opts *Options) (Options, error) {
	var s Options
	if opts != nil {
		s = *opts
	}
	if s.KeyHeader == "" {
		s.KeyHeader = wire.DefaultKeyHeader
	}
	s.KeyHeader = textproto.CanonicalMIMEHeaderKey(s.KeyHeader)
	if err := wire.CheckKeyHeader(s.KeyHeader); err != nil {
		return s, invalid("%w", err)
	}
	if s.Marker == "" {
		s.Marker = wire.DefaultMarker
	}
	if !wire.IsToken(s.Marker) {
		return s, invalid("Marker is not the name of a header")
	}
	if s.Methods == nil {
		s.Methods = []string{http.MethodPost, http.MethodPatch}
	}
	s.Methods = slices.Clone(s.Methods)
	for _, m := range s.Methods {
		if !wire.IsToken(m) {
			return s, invalid("Methods contains %q, which is not a method", m)
		}
	}
	if s.RetryStatuses == nil {
		s.RetryStatuses = DefaultRetryStatuses()
	}
	s.RetryStatuses = slices.Clone(s.RetryStatuses)
	for _, code := range s.RetryStatuses {
		if code < 400 || code > 599 {
			return s, invalid("RetryStatuses contains %d, not 400 to 599", code)
		}
	}
	for _, n := range []struct {
		name  string
		value *time.Duration
		def   time.Duration
		none  bool // a negative one means none
		most  time.Duration
	}{
		{"MaxElapsed", &s.MaxElapsed, 2 * time.Minute, true, 0},
		{"AttemptTimeout", &s.AttemptTimeout, 30 * time.Second, true, 0},
		{"Backoff", &s.Backoff, 100 * time.Millisecond, false, mostBackoff},
		{"MaxBackoff", &s.MaxBackoff, max(10*time.Second, s.Backoff), false, mostBackoff},
	} {
		switch {
		case *n.value == 0:
			*n.value = n.def
		case *n.value < 0 && !n.none:
			return s, invalid("%s is negative (%v)", n.name, *n.value)
		case n.most > 0 && *n.value > n.most:
			return s, invalid("%s is %v, the most is %v", n.name, *n.value, n.most)
		}
	}
	if s.MaxBackoff < s.Backoff {
		return s, invalid("MaxBackoff (%v) is less than Backoff (%v)", s.MaxBackoff, s.Backoff)
	}
	switch {
	case s.MaxAttempts < 0:
		return s, invalid("MaxAttempts is negative (%d); 1 is a single attempt", s.MaxAttempts)
	case s.MaxAttempts == 0:
		s.MaxAttempts = 10
	}
	switch {
	case s.BufferRequest < 0, s.BufferRequest > mostBuffered:
		return s, invalid("BufferRequest is %d, not 0 to %d bytes", s.BufferRequest, int64(mostBuffered))
	case s.BufferAnswer > mostBuffered:
		return s, invalid("BufferAnswer is %d, the most is %d bytes", s.BufferAnswer, int64(mostBuffered))
	case s.BufferAnswer == 0:
		s.BufferAnswer = defaultBuffer
	}
	return s, nil
}

func invalid(format string, args ...any) error {
	return fmt.Errorf("client: Options."+format, args...)
}
