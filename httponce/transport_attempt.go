package httponce

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"time"
)

// transportAttempt is one attempt of an operation: a request sent, under its own time limit, and what came of it.
type transportAttempt struct {
	out    *http.Request
	resp   *http.Response
	err    error // without resp: there was no answer; with it: the answer was cut off
	unsent bool  // err came before anything was sent

	parent context.Context
	ctx    context.Context
	cancel context.CancelCauseFunc
	timer  *time.Timer
}

// attempt makes the n-th attempt of an operation.
func (t *Transport) attempt(req *http.Request, op *transportOperation, n int) *transportAttempt {
	a := &transportAttempt{parent: req.Context()}
	a.ctx, a.cancel = context.WithCancelCause(req.Context())
	late := &transportTimeout{"TransportOptions.AttemptTimeout", t.set.AttemptTimeout}
	limit := t.set.AttemptTimeout
	if left := t.left(op, time.Now()); limit < 0 || left < limit {
		late, limit = &transportTimeout{"TransportOptions.MaxElapsed", t.set.MaxElapsed}, left
	}
	a.timer = time.AfterFunc(limit, func() { a.cancel(late) })

	body, err := transportBodyFor(req, n)
	if err != nil {
		a.err, a.unsent = err, true
		return a
	}
	a.out = req.WithContext(a.ctx)
	a.out.Header = t.withKey(req.Header, op.values)
	a.out.Body = body
	a.resp, err = t.base.RoundTrip(a.out) //nolint:bodyclose // hand gives it to the caller, drop closes it
	if err == nil && a.resp == nil {
		err = errTransportNoAnswer
	}
	if err != nil {
		a.resp, a.err = nil, a.told(err)
		if errors.Is(a.err, net.ErrClosed) {
			a.err = cmp.Or(transportBodyLength(req), a.err)
		}
	}
	return a
}

// sent returns how many attempts were made, this one being the n-th.
func (a *transportAttempt) sent(n int) int {
	if a.unsent {
		return n - 1
	}
	return n
}

func (a *transportAttempt) status() int {
	if a.resp == nil {
		return 0
	}
	return a.resp.StatusCode
}

// told returns an error of the base as what it comes from, where that is the end of a context.
func (a *transportAttempt) told(err error) error {
	if err == nil {
		return nil
	}
	if a.parent.Err() != nil {
		return transportEnded(a.parent)
	}
	var late *transportTimeout
	if errors.As(context.Cause(a.ctx), &late) {
		return late
	}
	return err
}

// hand returns the answer to the caller, with nothing left of the attempt but its body.
func (a *transportAttempt) hand(ctx context.Context, op *transportOperation) *http.Response {
	a.timer.Stop()
	op.mark(ctx, a.resp, a.out)
	body := a.resp.Body
	if body == nil || body == http.NoBody {
		a.release()
		return a.resp
	}
	if read, ok := body.(*transportBody); ok {
		if read.rest == nil {
			a.release()
		}
		return a.resp
	}
	if both, ok := body.(io.ReadWriteCloser); ok && a.resp.StatusCode == http.StatusSwitchingProtocols {
		a.resp.Body = &transportUpgraded{both, a.release}
		return a.resp
	}
	a.resp.Body = &transportBody{head: bytes.NewReader(nil), rest: body, done: a.release}
	return a.resp
}

// release gives back what the attempt holds.
func (a *transportAttempt) release() {
	a.timer.Stop()
	a.cancel(nil)
}
