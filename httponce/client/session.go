package client

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/everonce/everonce/httponce/internal/wire"
	"github.com/everonce/everonce/internal/sessioncalls"
)

// SessionOptions configure a [Session]. The zero value of each field means its default.
type SessionOptions struct {
	// Options are as for a [Transport], except for keys: KeyHeader, KeyFunc and RawKey are rejected. FollowTo allows the
	// secret to be sent to other origins than the sessions' own.
	Options
	// Ordered has the service execute the operations one after the other, in the order in which they began. So there is
	// one under way at a time.
	Ordered bool
	// OneSession has operations fail once the session is lost, with the error that says why. Default: the next operation
	// registers another session.
	OneSession bool
}

// Session is an [http.RoundTripper] whose operations are the numbered requests of a session, for services that take
// sessions in place of keys (httponce.HandleSession). Use it in an [http.Client]:
//
//	s, err := client.NewSession("https://bank.example/sessions", nil, nil)
//	…
//	defer s.Close(ctx)
//	c := &http.Client{Transport: s} // without a Timeout
//
// Do not set http.Client.Timeout: when it is over, net/http replaces everonce.ErrOutcomeUnknown by its own error. Use
// Options.MaxElapsed. (An operation ends a little before its context's deadline, so that its error comes first, but
// that is a race.)
//
// An operation is a request with one of Options.Methods: POST and PATCH by default. GET, HEAD, OPTIONS and TRACE are
// sent once, unchanged, and any other method is refused: see [ErrMethod]. An operation may be for any path of the
// origin that is served by a httponce.HandleSession over the same host of sessions: they share the session and its
// numbers.
//
// The first operation registers the session. Each operation has the next number, and is sent again with the same
// number, by the rules of [Transport], until it has an answer. Any number of operations may be under way; if the
// service's window is full, further ones wait. Each request carries the number up to which all answers have arrived, so
// that the service forgets them. The session is renewed at a third of its lease, until Close.
//
// # Unknown outcomes
//
// After any attempt that may have executed an operation, only the answer that the service keeps for its number is one.
// If the operation ends without it, by its context, by the limits of the options, or because the session was lost
// (nothing could renew it within its lease), the error is everonce.ErrOutcomeUnknown (the driver's constant of that
// name is the same). Why is in its text only: it matches no other error but [ErrNotHeeded]. An error that is not
// ErrOutcomeUnknown, and an answer of 400 or above, mean that it was not executed.
//
// An answer below 400 means that it was executed, whatever becomes of its body: look at the status first. An error from
// reading the body (the answer was larger than Options.BufferAnswer, or the last attempt's was cut off) says nothing of
// the effect.
//
// Never send an operation with an unknown outcome again: as a new operation, under this session or another, it may take
// effect a second time. Find out its outcome first. A copy that is still on its way, or runs, may take effect after the
// error, until the service knows that the client gave the number up. The client reports that at once, and again until
// the service answers, but not before earlier operations have ended, nor for a number that is more than the window
// above the last executed one. For certainty call Close: when it has succeeded, no request of the session is executed
// any more. (With a host that has transactions: see [session.Host] in package session.)
//
// Only the operations that were under way report the loss of a session. A new operation registers another session, so
// that one unknown outcome stops no other payment; see SessionOptions.OneSession.
//
// The secret of the session is sent to its origin only (SessionOptions.FollowTo), is not in an answer's Request, and in
// no error. A redirect followed by an [http.Client] is a new operation.
//
// A Session is safe for concurrent use.
type Session struct {
	t    *Transport
	at   *url.URL
	opts SessionOptions

	secret []byte    // of the next registration; the holder of the turn uses it
	asked  time.Time // when a renewal before an operation last ended, by the wall clock; the same

	mu     sync.Mutex
	turn   *turn // nil if no operation has it
	live   *live // the last one that was registered
	closed bool
}

// Errors of a [Session].
var (
	// ErrSessionClosed means that Session.Close was called.
	ErrSessionClosed = errors.New("client: the session is closed")
	// ErrMethod means that a request may change something by its method, but that this is none of Options.Methods, so it
	// has no number. It was not sent.
	ErrMethod = errors.New("client: the request's method is not one of Options.Methods, and is not safe")
	// ErrOtherOrigin means that a request is for another origin than the sessions' own, which must not get the secret. It
	// was not sent.
	ErrOtherOrigin = errors.New("client: the request is for another origin than the session (see SessionOptions.FollowTo)")
	// ErrNotHeeded means that the service accepted a request but does not support sessions, so the request may have taken
	// effect each time it was sent. Check the URL. It comes with everonce.ErrOutcomeUnknown.
	ErrNotHeeded = errors.New("client: the service does not support sessions at this URL")
)

// NewSession returns a session of the service whose sessions are registered at sessionsURL; base is what requests are
// sent through, as for [NewTransport]. Nothing is sent yet. It returns an error if the URL or opts are invalid.
func NewSession(sessionsURL string, base http.RoundTripper, opts *SessionOptions) (*Session, error) {
	var set SessionOptions
	if opts != nil {
		set = *opts
	}
	if set.KeyHeader != "" || set.KeyFunc != nil || set.RawKey {
		return nil, errors.New("client: SessionOptions: KeyHeader, KeyFunc and RawKey are for keys, and a session has none (leave them unset)")
	}
	at, err := url.Parse(sessionsURL)
	if err != nil || at.Host == "" {
		return nil, errors.New("client: the URL of the sessions is not absolute")
	}
	t, err := NewTransport(base, &set.Options)
	if err != nil {
		return nil, err
	}
	return &Session{t: t, at: at, opts: set}, nil
}

// CloseIdleConnections closes the base's idle connections, for [http.Client.CloseIdleConnections].
func (s *Session) CloseIdleConnections() { s.t.CloseIdleConnections() }

// RoundTrip sends the request until it has an answer, within the limits. The error is everonce.ErrOutcomeUnknown if the
// outcome is unknown, and also [ErrNotHeeded] if that is the reason. With any other error the request was not executed:
// [ErrMethod], [ErrOtherOrigin], [ErrSessionClosed], [ErrBodyNotRepeatable], a [*RetryError], the session's end
// (session.ErrSessionExpired and others), or an error of the registration or the context.
func (s *Session) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.URL == nil || !s.t.isOperation(req.Method) {
		switch req.Method {
		case "", http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace: // they change nothing (RFC 9110, 9.2.1)
			return s.t.base.RoundTrip(req)
		}
		closeBody(req)
		return nil, fmt.Errorf("%w: %s", ErrMethod, req.Method)
	}
	if !s.t.mayFollow(s.at, req.URL) {
		closeBody(req)
		return nil, fmt.Errorf("%w: %s", ErrOtherOrigin, req.URL.Host)
	}
	out, err := s.t.repeatable(req)
	if err != nil {
		return nil, err
	}
	op := &operation{url: req.URL, begun: time.Now()}
	if deadline, ok := req.Context().Deadline(); ok { // see the words on http.Client.Timeout
		op.until = deadline.Add(-min(margin, deadline.Sub(op.begun)/10))
	}
	call, err := s.begin(req.Context(), op)
	if err != nil {
		closeBody(out)
		return nil, err
	}
	op.put, op.call = call.put, call
	resp, err := s.t.repeat(out, op)
	return call.end(op, resp, err)
}

// margin is how long before the request's deadline an operation ends: at the deadline itself net/http may replace the
// error by its own.
const margin = 100 * time.Millisecond

func closeBody(req *http.Request) {
	if req.Body != nil {
		_ = req.Body.Close() //nolint:errcheck // it was not read
	}
}

// begin allots a number in the current session, as far as the client knows it.
func (s *Session) begin(ctx context.Context, op *operation) (*call, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, s.t.timeLeft(op, time.Now()), s.t.limitExceeded(op))
	defer cancel()
	for {
		if ctx.Err() != nil {
			return nil, endOf(ctx)
		}
		l, err := s.ready(ctx)
		if err != nil {
			return nil, err
		}
		number, err := l.calls.Begin(ctx)
		switch {
		case err == nil:
			return &call{t: s.t, live: l, number: number}, nil
		case l.calls.Gone() == nil || s.opts.OneSession: // by the context
			return nil, err
		}
	}
}

// ready returns the session before an operation is sent under it. It registers one if there is no session, and renews
// one that was idle so long that it may have expired.
func (s *Session) ready(ctx context.Context) (*live, error) {
	if l, err := s.current(); err != nil || l != nil && !l.quiet() {
		return l, err
	}
	s.mu.Lock()
	others := s.turn
	mine := &turn{over: make(chan struct{})}
	if others == nil {
		s.turn = mine
	}
	s.mu.Unlock()
	if others == nil {
		return s.take(ctx, mine)
	}
	select {
	case <-others.over:
		if others.live != nil || others.err != nil {
			return others.live, others.err
		}
		return s.ready(ctx)
	case <-ctx.Done():
		return nil, endOf(ctx)
	}
}

// turn belongs to the operation that registers or renews the session. Operations that wait share its result.
type turn struct {
	over chan struct{} // closed when it is
	live *live
	err  error // both are nil if its operation had no time left: another one may do better
}

func (s *Session) take(ctx context.Context, mine *turn) (l *live, err error) {
	defer func() {
		if ctx.Err() == nil {
			mine.live, mine.err = l, err
		}
		s.mu.Lock()
		s.turn = nil
		s.mu.Unlock()
		close(mine.over)
	}()
	if l, err = s.current(); err != nil || l != nil && !l.quiet() {
		return l, err
	}
	if l != nil {
		if now := time.Now().Round(0); now.Sub(s.asked) > l.lease/6 { // else the network does not let it through, and each operation would wait for that
			_ = l.renew(ctx, l.calls.BeatMark()) //nolint:errcheck // a refusal that matters is noted
			s.asked = time.Now().Round(0)
		}
		if l, err = s.current(); l != nil || err != nil {
			return l, err
		}
	}
	return s.register(ctx)
}

// current returns the session, or nil if another one is to be registered.
func (s *Session) current() (*live, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		return nil, ErrSessionClosed
	case s.live == nil:
		return nil, nil
	}
	gone := s.live.calls.Gone()
	switch {
	case gone == nil:
		return s.live, nil
	case s.opts.OneSession:
		return nil, gone
	}
	return nil, nil
}

func (s *Session) register(ctx context.Context) (*live, error) {
	if s.secret == nil { // else an earlier registration may have come through
		s.secret = make([]byte, 32)
		_, _ = rand.Read(s.secret) // it does not fail
	}
	l := &live{s: s, secret: wire.FormatSecret(s.secret)}
	begun := time.Now()
	h, err := l.ask(ctx, http.MethodPost, func(h http.Header) {
		if s.opts.Ordered {
			h.Set(wire.SessionOrdered, "?1")
		}
	})
	if err != nil {
		return nil, fmt.Errorf("client: the session was not registered: %w", err)
	}
	id, found, _ := wire.SessionInteger(h, wire.SessionHeader)
	window, _, _ := wire.SessionInteger(h, wire.SessionWindow)
	if l.lease = wire.Lease(h); !found || l.lease == 0 {
		return nil, errors.New("client: the session was not registered: the answer has no session, or no lease (does httponce.Sessions serve the URL?)")
	}
	s.secret = nil
	if l.id = id; s.opts.Ordered {
		window = 1
	}
	l.calls, l.renewed = sessioncalls.New(window), make(chan struct{})
	l.accepted(begun)
	if !s.startRenewal(l) {
		return nil, errors.Join(ErrSessionClosed, l.finish(ctx))
	}
	return l, nil
}

// startRenewal has the session renewed from now on. It returns false if Close was called meanwhile.
func (s *Session) startRenewal(l *live) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.live = l
	var ctx context.Context // not the first operation's: its values do not belong to renewals
	ctx, l.cancel = context.WithCancel(context.Background())
	go func() {
		defer close(l.renewed)
		defer l.cancel()
		l.calls.Renew(ctx, l.lease, l.keep)
	}()
	return true
}

// Close ends the session. The outcome of operations under way is then unknown, unless they still get their answer.
// Later operations fail with [ErrSessionClosed]. If the service cannot be reached, the error says why, and the session
// ends with its lease.
func (s *Session) Close(ctx context.Context) error {
	s.mu.Lock()
	s.closed = true
	l := s.live
	s.mu.Unlock()
	if l == nil {
		return nil
	}
	there := l.calls.Lose(ErrSessionClosed)
	l.cancel()
	<-l.renewed
	if !there { // it was lost, or closed before
		return nil
	}
	return l.finish(ctx)
}

// drained reads and drops an unused answer, within bounds.
func drained(body io.ReadCloser) {
	_, _ = io.CopyN(io.Discard, body, drainBytes) //nolint:errcheck // the result is not needed
	_ = body.Close()                              //nolint:errcheck // nor that
}
