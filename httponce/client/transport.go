package client

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strings"
	"time"
)

// Transport is an [http.RoundTripper] that gives every operation one key, and sends it again with the same key until
// it has an answer. Use it in an [http.Client]:
//
//	t, err := client.NewTransport(nil, nil)
//	…
//	c := &http.Client{Transport: t}
//	req, err := http.NewRequestWithContext(client.WithKey(ctx, "charge-order-7"), http.MethodPost, url, body)
//
// An operation is a request with one of Options.Methods. Any other request is sent once, unchanged.
//
// # The key
//
// The key is the request's own Idempotency-Key header, sent unchanged; else the key of [WithKey]; else the result of
// Options.KeyFunc; else a random key of 130 bits. A random key covers one call of RoundTrip and its redirects: calling
// again, in a loop or after a restart, starts another operation. The key is sent as a quoted string, as the draft
// requires; see Options.RawKey for servers that do not accept that. The answer's Request.Header has the header that was
// sent.
//
// A redirect with 307 or 308 keeps the key; with 301, 302 or 303 it becomes a GET, which has none. A server that has
// the key and the caller's credentials can read the saved answer, and another origin may not share the record, so the
// key is not sent to another origin: see [ErrRedirectedElsewhere].
//
// # What is retried
//
// Network errors are retried, except those that would come again: an invalid certificate, a server without TLS, a
// request that cannot be sent, and the end of the request by its context or its Cancel. Answers are retried if their
// status is one of Options.RetryStatuses; if they are a 409 that means "in progress", by a problem's type or the
// draft's title, or that has a Retry-After; and if they are cut off within Options.BufferAnswer bytes. An answer that
// is marked as replayed (Options.Marker) is never retried: it would be the same again. The pause is random, up to a
// bound that doubles (full jitter). After a Retry-After, in seconds or as a date, the pause is that plus up to
// Options.Backoff.
//
// RoundTrip returns the last attempt's answer with its body, whatever its status. Without one, or if the wait for
// another attempt was interrupted, the error is a [*RetryError]. If the last answer, or one too large to be buffered,
// is cut off, reading its body returns the error.
//
// An [http.Transport] below may send a request with this header again automatically, which is not counted as an
// attempt: if a reused connection turns out to be closed, and over HTTP/2 after GOAWAY and REFUSED_STREAM, up to seven
// times within a minute. It has the same key.
//
// A Transport is safe for concurrent use.
type Transport struct {
	base http.RoundTripper
	set  Options
}

// NewTransport returns a transport that sends through base; nil means a clone of the current [http.DefaultTransport].
// It returns an error if opts are invalid.
func NewTransport(base http.RoundTripper, opts *Options) (*Transport, error) {
	set, err := settingsOf(opts)
	if err != nil {
		return nil, err
	}
	if base == nil {
		base = http.DefaultTransport
		if std, ok := base.(*http.Transport); ok {
			base = std.Clone()
		}
	}
	return &Transport{base: base, set: set}, nil
}

// CloseIdleConnections closes the base's idle connections, for [http.Client.CloseIdleConnections].
func (t *Transport) CloseIdleConnections() {
	if c, ok := t.base.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

// RoundTrip sends the request until it has an answer, within the limits. If nothing was sent, the error is
// [ErrInvalidKey], [ErrBodyNotRepeatable], KeyFunc's error, or an error from reading the body into memory. It is
// [ErrRedirectedElsewhere] if a redirect leads to another origin, otherwise a [*RetryError]. If the request is not an
// operation, it is the base's error.
func (t *Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	op, redirected, err := t.operationOf(req)
	if err != nil {
		if req.Body != nil {
			_ = req.Body.Close() //nolint:errcheck // it was not read
		}
		return nil, err
	}
	if req.URL == nil || !t.isOperation(req.Method) {
		if redirected {
			return t.passOn(req, op)
		}
		return t.base.RoundTrip(req)
	}
	req, err = t.repeatable(req)
	if err != nil {
		return nil, err
	}
	return t.repeat(req, op)
}

// passOn sends a request that an operation was redirected to and that is not an operation itself: without the key.
func (t *Transport) passOn(req *http.Request, op *operation) (*http.Response, error) {
	out := req
	if own, found := t.ownValues(req.Header); found && slices.Equal(own, op.values) {
		out = req.WithContext(req.Context())
		out.Header = t.withKey(req.Header, nil)
	}
	resp, err := t.base.RoundTrip(out)
	if err == nil && resp != nil {
		op.mark(req.Context(), resp, out)
	}
	return resp, err
}

func (t *Transport) repeat(req *http.Request, op *operation) (*http.Response, error) {
	ctx := req.Context()
	for n := 1; ; n++ {
		a := t.attempt(req, op, n)
		op.call.noteAttempt(a)
		retry := t.worthAnother(ctx, a)
		pause, may := t.pauseAfter(ctx, op, n, a)
		if a.resp != nil && a.err == nil && (!retry || !may) {
			if a.err = a.buffer(t.set.BufferAnswer); a.err == nil {
				return a.response(ctx, op), nil
			}
			retry = t.worthAnother(ctx, a)
			pause, may = t.pauseAfter(ctx, op, n, a)
		}
		if !retry || !may {
			if a.resp != nil {
				return a.response(ctx, op), nil
			}
			a.release()
			return nil, op.retryError(a.sent(n), a.err)
		}
		a.drop(t.timeLeft(op, time.Now()) - pause)
		if t.set.OnRetry != nil {
			t.set.OnRetry(ctx, Retry{Request: req, Attempt: n, Status: a.status(), Err: a.err, Pause: pause})
		}
		if err := wait(ctx, pause); err != nil {
			return nil, op.retryError(n, err)
		}
		if err := op.call.over(); err != nil {
			return nil, op.retryError(n, err)
		}
	}
}

// worthAnother reports whether another attempt may end differently.
func (t *Transport) worthAnother(ctx context.Context, a *attempt) bool {
	if ctx.Err() != nil || a.unsent {
		return false
	}
	var retry bool
	switch {
	case a.err != nil:
		retry = mayHelp(a.err)
	case t.replayed(a.resp.Header):
	case slices.Contains(t.set.RetryStatuses, a.resp.StatusCode):
		retry = true
	case a.resp.StatusCode == http.StatusConflict:
		if retry, a.err = a.passes(); a.err != nil {
			retry = mayHelp(a.err)
		}
	}
	if t.set.RetryIf != nil {
		retry = t.set.RetryIf(a.resp, a.err, retry)
	}
	return retry
}

// replayed reports whether an answer is marked as the saved one. Some servers mark the first one too, with false.
func (t *Transport) replayed(h http.Header) bool {
	switch strings.ToLower(h.Get(t.set.Marker)) {
	case "", "false", "?0":
		return false
	}
	return true
}

// pauseAfter returns the pause after the n-th attempt, and whether the limits allow another one.
func (t *Transport) pauseAfter(ctx context.Context, op *operation, n int, a *attempt) (time.Duration, bool) {
	if n-op.call.idle() >= t.set.MaxAttempts {
		return 0, false
	}
	now := time.Now()
	var retryAfter time.Duration
	if a.resp != nil {
		retryAfter = retryAfterOf(a.resp.Header, now)
	}
	pause := backoff{t.set.Backoff, t.set.MaxBackoff}.pause(n, retryAfter)
	if pause >= t.timeLeft(op, now) {
		return 0, false
	}
	if deadline, ok := ctx.Deadline(); ok && pause >= deadline.Sub(now) {
		return 0, false
	}
	return pause, true
}

func (t *Transport) timeLeft(op *operation, now time.Time) time.Duration {
	left := time.Duration(math.MaxInt64)
	if t.set.MaxElapsed >= 0 {
		left = t.set.MaxElapsed - now.Sub(op.begun)
	}
	if !op.until.IsZero() {
		left = min(left, op.until.Sub(now))
	}
	return left
}

// limitExceeded returns the error of an operation whose time is over.
func (t *Transport) limitExceeded(op *operation) *limitError {
	if within := op.until.Sub(op.begun); !op.until.IsZero() && (t.set.MaxElapsed < 0 || within < t.set.MaxElapsed) {
		return &limitError{"the request's deadline", within}
	}
	return &limitError{"Options.MaxElapsed", t.set.MaxElapsed}
}

// withKey returns a copy of h in which the key's header has these values; with none it is removed.
func (t *Transport) withKey(h http.Header, values []string) http.Header {
	h = h.Clone()
	if own, found := t.ownValues(h); found && slices.Equal(own, values) {
		return h // as the caller wrote it
	}
	for name := range h {
		if http.CanonicalHeaderKey(name) == t.set.KeyHeader {
			delete(h, name)
		}
	}
	if h == nil {
		h = http.Header{}
	}
	if len(values) > 0 {
		h[t.set.KeyHeader] = values
	}
	return h
}

// mark puts the operation into the context of the answer's request, where a redirect finds it.
func (op *operation) mark(ctx context.Context, resp *http.Response, sent *http.Request) {
	if resp.Request != nil {
		sent = resp.Request
	}
	resp.Request = sent.WithContext(context.WithValue(ctx, operationInContext{}, op))
}

func (op *operation) retryError(attempts int, err error) error {
	return &RetryError{Attempts: attempts, Elapsed: time.Since(op.begun), Err: err}
}

// wait waits, or returns why the context ended.
func wait(ctx context.Context, pause time.Duration) error {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return endOf(ctx)
	}
}

// endOf returns why a context ended: its error, and its cause if that differs.
func endOf(ctx context.Context) error {
	if err, cause := ctx.Err(), context.Cause(ctx); !errors.Is(cause, err) {
		return fmt.Errorf("%w: %w", err, cause)
	}
	return context.Cause(ctx)
}
