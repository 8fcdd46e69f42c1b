package client

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/everonce/everonce/httponce/internal/wire"
	"github.com/everonce/everonce/internal/sessioncalls"
	"github.com/everonce/everonce/session"
)

// live is a session that was registered.
type live struct {
	s       *Session
	id      uint64
	secret  string // as a field
	lease   time.Duration
	calls   *sessioncalls.Calls
	cancel  context.CancelFunc // ends the renewals
	renewed chan struct{}      // closed when nothing renews any more

	mu   sync.Mutex
	last time.Time // when what the service last accepted was sent
}

// accepted records when an accepted request was sent. It uses the wall clock, because the monotonic clock may stand
// still while the machine sleeps.
func (l *live) accepted(sent time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if sent = sent.Round(0); sent.After(l.last) {
		l.last = sent
	}
}

// quiet reports whether the session may be gone, since its renewals did not come through.
func (l *live) quiet() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return time.Now().Round(0).Sub(l.last) > l.lease/2
}

// note looks for a refusal that is the end of the session.
func (l *live) note(refusal session.Refusal) {
	l.calls.Note(refusal)
	if l.calls.Gone() != nil {
		l.cancel()
	}
}

// keep renews the session. While a request is executed, some services cannot, and say so: it is asked again soon, since
// the request renews the session only if it succeeds.
func (l *live) keep(ctx context.Context, mark uint64) {
	for l.renew(ctx, mark) == session.ErrInProgress && wait(ctx, l.lease/12) == nil {
		mark = l.calls.BeatMark()
	}
}

// renew keeps the session, and tells the mark, or finds that it is gone. It returns what the service refused it with.
func (l *live) renew(ctx context.Context, mark uint64) (refusal session.Refusal) {
	begun := time.Now()
	ctx, cancel := context.WithTimeout(ctx, l.lease)
	defer cancel()
	_, err := l.ask(ctx, http.MethodPut, func(h http.Header) { h.Set(wire.SessionMark, wire.FormatInteger(mark)) })
	if errors.As(err, &refusal) {
		l.note(refusal)
	}
	if err == nil {
		l.accepted(begun)
	}
	return refusal
}

// finish ends the session.
func (l *live) finish(ctx context.Context) error {
	if _, err := l.ask(ctx, http.MethodDelete, nil); err != nil {
		return fmt.Errorf("client: the session was not ended: %w", err)
	}
	return nil
}

// ask sends what is about the session itself, until it is answered. The error is the refusal, or why there is no
// answer.
func (l *live) ask(ctx context.Context, method string, with func(http.Header)) (http.Header, error) {
	req, err := http.NewRequestWithContext(ctx, method, l.s.at.String(), http.NoBody)
	if err != nil {
		return nil, err
	}
	put := func(h http.Header) {
		l.put(h)
		if with != nil {
			with(h)
		}
	}
	// One attempt that hangs must not cost the session. There is no lease before the registration.
	resp, err := l.s.t.repeat(req, &operation{url: req.URL, begun: time.Now(), put: put, most: l.lease / 3}) //nolint:bodyclose // drained closes it
	if err != nil {
		return nil, err
	}
	defer drained(resp.Body)
	if resp.StatusCode < http.StatusMultipleChoices {
		return resp.Header, nil
	}
	d, refusal := refusalOf(resp)
	if d.Is(wire.SessionBusy) {
		refusal = session.ErrInProgress
	}
	if refusal != 0 {
		return nil, refusal
	}
	return nil, fmt.Errorf("the service answered %d %s", resp.StatusCode, d.Title)
}

// put writes which session it is.
func (l *live) put(h http.Header) {
	if l.id > 0 {
		h.Set(wire.SessionHeader, wire.FormatInteger(l.id))
	}
	h.Set(wire.SessionSecret, l.secret)
}

// problem returns the problem that an answer is, or an empty one.
func (a *attempt) problem() (d wire.Document) {
	if a.resp.StatusCode < http.StatusBadRequest || !wire.IsProblem(a.resp.Header) {
		return d
	}
	text, whole, err := a.peek(wire.MaxProblem)
	if err != nil || !whole {
		return d
	}
	if d, err = wire.ReadProblem(a.resp.Header, text); err != nil {
		return wire.Document{}
	}
	return d
}

// refusalOf returns the problem that an answer is whose attempt has ended, and the refusal by which the session cannot
// be used, or the number.
func refusalOf(resp *http.Response) (wire.Document, session.Refusal) {
	a := attempt{resp: resp, parent: context.Background(), ctx: context.Background(), timer: time.NewTimer(0), cancel: func(error) {}}
	d := a.problem()
	for p, refusal := range map[wire.Problem]session.Refusal{
		wire.SessionExpired: session.ErrSessionExpired, wire.SessionUnknown: session.ErrSessionUnknown,
		wire.SessionFenced: session.ErrFenced, wire.RequestStale: session.ErrStale,
	} {
		if d.Is(p) {
			return d, refusal
		}
	}
	return d, 0
}
