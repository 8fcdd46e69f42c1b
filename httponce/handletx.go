package httponce

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/everonce/everonce"
)

// HandleTx returns a handler whose effects in the database and whose saved answer commit together
// (transactional mode): exactly once, as long as the database keeps what it committed. The answer is sent
// after the commit.
//
// handle writes through tx only. Where it returns an error, or answers 400 or above, nothing of what it wrote in
// the database remains; an answer that [Route.Save] saves is saved all the same. It may be called several times
// for one request, when the database made the transaction start again.
func HandleTx[Tx any](recv *everonce.TxReceiver[Tx], principal Principal, handle func(http.ResponseWriter, *http.Request, Tx) error, opts *Options) (http.Handler, error) {
	if recv == nil || principal == nil || handle == nil {
		return nil, fmt.Errorf("%w: the receiver, the principal or the handler is nil", everonce.ErrInvalidArgument)
	}
	s, err := opts.settings()
	if err != nil {
		return nil, err
	}
	return &txHandler[Tx]{settings: s, recv: recv, principal: principal, handle: handle}, nil
}

type txHandler[Tx any] struct {
	*settings
	recv      *everonce.TxReceiver[Tx]
	principal Principal
	handle    func(http.ResponseWriter, *http.Request, Tx) error
}

func (h *txHandler[Tx]) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	x, pass := h.admit(w, r, h.principal)
	switch {
	case pass:
		h.unkeyed(w, r)
	case x != nil:
		x.told.KeyHash = h.recv.RecordID(x.key).Short()
		x.told.Panicked = true // unless it returns
		defer x.end()
		x.answer(x.awaited(func(calls ...everonce.CallOption) verdict { return h.transact(x, calls) }))
		x.told.Panicked = false
	}
}

func (h *txHandler[Tx]) transact(x *exchange, calls []everonce.CallOption) (v verdict) {
	v.res, v.err = everonce.Transact(x.r.Context(), h.recv, x.key, func(ctx context.Context, tx Tx) (Answer, error) {
		x.stay.leave()
		v.own = newRecorder(x.w, x.route)
		if err := h.handle(v.own, x.request(ctx), tx); err != nil {
			v.own = nil
			return Answer{}, err
		}
		v.own.finish()
		return v.own.outcome()
	}, calls...)
	return v
}

// unkeyed runs the handler in a transaction, for a request that has no key and needs none.
func (h *txHandler[Tx]) unkeyed(w http.ResponseWriter, r *http.Request) {
	x, ok := h.unprotected(w, r)
	if !ok {
		return
	}
	var v verdict
	v.err = h.recv.InTx(r.Context(), func(ctx context.Context, tx Tx) error {
		v.own = newRecorder(x.w, x.route)
		err := h.handle(v.own, x.request(ctx), tx)
		v.own.finish()
		if err == nil && v.own.status >= http.StatusBadRequest {
			err = statusError(v.own.status)
		}
		return err
	})
	var refused statusError
	switch {
	case v.err == nil, errors.As(v.err, &refused):
		v.own.send()
	default:
		x.log.ErrorContext(r.Context(), "httponce: the transaction failed", "route", x.told.Route, "error", v.err)
		x.problem(problemUnavailable, x.retryAfter)
	}
	x.end()
}
