package client

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptrace"
	"sync/atomic"
	"time"
)

// attempt is one attempt of an operation: a request under its own time limit, and its result.
type attempt struct {
	out    *http.Request
	resp   *http.Response
	err    error        // without resp: there was no answer; with it: the answer was cut off
	unsent bool         // err came before anything was sent
	sends  atomic.Int32 // how often the base has written it, as far as it tells; of a session's operation

	parent context.Context
	ctx    context.Context
	cancel context.CancelCauseFunc
	timer  *time.Timer
}

func (t *Transport) attempt(req *http.Request, op *operation, n int) *attempt {
	a := &attempt{parent: req.Context()}
	a.ctx, a.cancel = context.WithCancelCause(req.Context())
	late := &limitError{"Options.AttemptTimeout", t.set.AttemptTimeout}
	limit := t.set.AttemptTimeout
	if left := t.timeLeft(op, time.Now()); limit < 0 || left < limit {
		late, limit = t.limitExceeded(op), left
	}
	if op.most > 0 && (limit < 0 || op.most < limit) {
		late, limit = &limitError{"a third of the lease", op.most}, op.most
	}
	a.timer = time.AfterFunc(limit, func() { a.cancel(late) })

	body, err := bodyFor(req, n)
	if err != nil {
		a.err, a.unsent = err, true
		return a
	}
	ctx := a.ctx
	if op.call != nil {
		ctx = httptrace.WithClientTrace(ctx, counting(&a.sends))
	}
	a.out = req.WithContext(ctx)
	a.out.Header = t.withKey(req.Header, op.values)
	if op.put != nil {
		op.put(a.out.Header)
	}
	a.out.Body = body
	a.resp, err = t.base.RoundTrip(a.out) //nolint:bodyclose // hand gives it to the caller, drop closes it
	if err == nil && a.resp == nil {
		err = errNoAnswer
	}
	switch {
	case err != nil:
		a.resp, a.err = nil, a.contextCause(err)
	case op.put != nil:
		a.resp.Request = req // what was put into it is a secret
	}
	return a
}

// sent returns how many attempts were made, this one being the n-th.
func (a *attempt) sent(n int) int {
	if a.unsent {
		return n - 1
	}
	return n
}

func (a *attempt) status() int {
	if a.resp == nil {
		return 0
	}
	return a.resp.StatusCode
}

// contextCause returns the reason for an error of the base transport if a context ended it.
func (a *attempt) contextCause(err error) error {
	if err == nil {
		return nil
	}
	if a.parent.Err() != nil {
		return endOf(a.parent)
	}
	if late, ok := errors.AsType[*limitError](context.Cause(a.ctx)); ok {
		return late
	}
	return err
}

// response returns the answer to the caller; the attempt ends with its body.
func (a *attempt) response(ctx context.Context, op *operation) *http.Response {
	a.timer.Stop()
	op.mark(ctx, a.resp, a.out)
	body := a.resp.Body
	if body == nil || body == http.NoBody {
		a.release()
		return a.resp
	}
	if read, ok := body.(*answerBody); ok {
		if read.rest == nil {
			a.release()
		}
		return a.resp
	}
	if both, ok := body.(io.ReadWriteCloser); ok && a.resp.StatusCode == http.StatusSwitchingProtocols {
		a.resp.Body = &upgraded{both, a.release}
		return a.resp
	}
	a.resp.Body = &answerBody{head: bytes.NewReader(nil), rest: body, done: a.release}
	return a.resp
}

func (a *attempt) release() {
	a.timer.Stop()
	a.cancel(nil)
}
