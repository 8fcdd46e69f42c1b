package httponce

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/everonce/everonce"
)

// HandleTx returns a handler whose effects in the database and whose saved answer commit together (transactional
// mode): exactly once, as long as the database keeps what it committed. The answer is sent after the commit.
//
// handle writes to the database through tx only. If the database restarts the transaction, handle is called again, in a
// new transaction, with a new ResponseWriter and body. If handle
//
//   - returns nil, with a status below 400: effects and answer are committed.
//   - returns nil, with 400 or above: its effects are rolled back. The answer is sent, and saved if [Route.Save] says
//     so; otherwise the key may be used again. After [NotDone] this holds for any status.
//   - returns an error, or returns nil without an answer after the end of its context: its effects are rolled back, and
//     the key may be used again. The client gets what handle wrote if that is 400 or above; otherwise the problem
//     not-done, 503 with a Retry-After. The error's text is logged and not sent.
//   - returns an [everonce.Permanent] failure: its effects are rolled back, and the failure is saved. The client gets
//     what handle wrote if that is 400 or above; otherwise the problem refused, 422, with the failure's code and
//     message.
//   - panics or exits its goroutine: its effects are rolled back, and the panic continues.
//
// If a commit failed or its answer was lost, the answer is a problem, 503 with a Retry-After: the retry finds out.
//
// The ResponseWriter holds the answer until the commit. It is no [http.Flusher], the methods of
// [http.ResponseController] return [http.ErrNotSupported], and statuses below 200 are dropped.
//
// A request without a key, where none is required, runs in a transaction by the same rules, but nothing is saved.
//
// The handler's context ends with the transaction's time limit ([everonce.Options].TxTimeout) and with
// [Route.Deadline]. AnswerWithin, FailOpen, Policy, Reconcile and Lease are refused, because what did not commit did
// not happen. A Save by which an answer below 400 is not saved is refused too: its effects would be rolled back. The
// error wraps [everonce.ErrInvalidArgument].
func HandleTx[Tx any](recv *everonce.TxReceiver[Tx], principal Principal, handle func(http.ResponseWriter, *http.Request, Tx) error, opts *Options) (http.Handler, error) {
	if recv == nil || principal == nil || handle == nil {
		return nil, fmt.Errorf("%w: the receiver, the principal or the handler is nil", everonce.ErrInvalidArgument)
	}
	s, err := opts.settings()
	if err != nil {
		return nil, err
	}
	if err := s.checkTx(); err != nil {
		return nil, err
	}
	if err := s.prepare(recv); err != nil {
		return nil, err
	}
	return &txHandler[Tx]{settings: s, recv: recv, principal: principal, handle: handle, limit: recv.Options().TxTimeout}, nil
}

// checkTx refuses options that have no meaning in a transaction.
func (s *settings) checkTx() error {
	for _, rt := range s.routes {
		err := rejectMeaningless("HandleTx", []meaning{
			{rt.AnswerWithin != 0, "AnswerWithin", "a transaction is bounded by the receiver's TxTimeout"},
			{rt.FailOpen, "FailOpen", "the effects are in the store that would be down"},
			{rt.Policy != 0, "Policy", "what did not commit did not happen, so there is no unknown"},
			{rt.Reconcile != nil, "Reconcile", "what did not commit did not happen, so there is nothing to ask"},
			{rt.Lease != 0, "Lease", "a transaction has none; it is bounded by the receiver's TxTimeout"},
			{!rt.save.all(firstStatus, http.StatusBadRequest), "Save of 2xx and 3xx", "an answer below 400 is committed with its effects, so it is saved"},
		})
		if err != nil {
			return rt.in(err)
		}
	}
	return nil
}

// meaning is an option, and why it has no meaning where it is set.
type meaning struct {
	set  bool
	name string
	why  string
}

// rejectMeaningless refuses the first option that is set.
func rejectMeaningless(in string, options []meaning) error {
	for _, o := range options {
		if o.set {
			return fmt.Errorf("%w: %s has no meaning for %s: %s", everonce.ErrInvalidArgument, o.name, in, o.why)
		}
	}
	return nil
}

type txHandler[Tx any] struct {
	*settings
	recv      *everonce.TxReceiver[Tx]
	principal Principal
	handle    func(http.ResponseWriter, *http.Request, Tx) error
	limit     time.Duration // of a transaction
}

func (h *txHandler[Tx]) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	x, pass := h.admit(w, r, h.principal)
	switch {
	case pass && x != nil:
		h.serveWithoutKey(x)
	case pass:
		if x, ok := h.unprotected(w, r); ok {
			h.serveWithoutKey(x)
		}
	case x != nil:
		x.recv = h.recv
		x.served.Panicked = true // unless it returns
		defer x.end()
		x.answer(x.callWaiting(h))
		x.served.Panicked = false
	}
}

func (h *txHandler[Tx]) call(x *exchange, opts []everonce.CallOption) verdict {
	v := verdict{tx: true}
	v.res, v.err = everonce.Transact(x.r.Context(), h.recv, x.key, func(ctx context.Context, tx Tx) (Answer, error) {
		x.wait.leave()
		return h.serve(ctx, x, &v, tx)
	}, opts...)
	return v
}

// serveWithoutKey runs the handler in a transaction, for a request that has no key and needs none, and whose body has
// been read.
func (h *txHandler[Tx]) serveWithoutKey(x *exchange) {
	defer x.body.release()
	v := verdict{tx: true}
	v.res.Attempt = 1 // there is no other
	var worked error  // the handler's own, which may tell what became of another operation
	v.err = h.recv.InTx(x.r.Context(), func(ctx context.Context, tx Tx) error {
		_, worked = h.serve(ctx, x, &v, tx)
		return worked
	})
	e, ours := v.err.(*everonce.Error) //nolint:errorlint // one inside another error is the handler's
	switch {
	case v.err == nil:
		v.res.Outcome = everonce.Executed
	case ours && v.err != worked: //nolint:errorlint // it is not whether the one is in the other
		v.res.Outcome = e.Outcome
	case permanent(v.err) != nil:
		v.res.Outcome = everonce.Rejected
	default:
		v.res.Outcome = everonce.Failed
	}
	x.answer(v)
}

// serve calls the handler in one transaction; there may be several.
func (h *txHandler[Tx]) serve(ctx context.Context, x *exchange, v *verdict, tx Tx) (Answer, error) {
	ctx, cancel := h.context(ctx, x.route)
	defer cancel()
	return serveTx(ctx, x, v, tx, h.handle, func(own *recorder) func([][]byte) (*pieces, error) { return h.keeps(ctx, x, tx, own) })
}

// serveTx calls a handler in one transaction; there may be several. keeps returns what keeps the pieces of a large
// answer.
func serveTx[Tx any](ctx context.Context, x *exchange, v *verdict, tx Tx, handle func(http.ResponseWriter, *http.Request, Tx) error,
	keeps func(*recorder) func([][]byte) (*pieces, error),
) (Answer, error) {
	own := new(recorder)
	own.init(x, true)
	own.buffers = true // until the commit
	x.own, v.own, v.ending = own, own, 0
	r := x.request(ctx)
	defer x.tidy(r)
	err := handle(&txWriter{own}, r, tx)
	if err == nil && own.wroteNothing() && ctx.Err() != nil { // it returned because the client left, so it did not mean the default 200
		err = context.Cause(ctx)
	}
	if err == nil {
		own.finish()
		v.ending = own.ending()
		return own.outcome(v.ending, keeps(own))
	}
	if own.status < http.StatusBadRequest { // or none
		v.own = nil
		return Answer{}, err
	}
	own.finish()
	if permanent(err) == nil {
		v.ending = Released
		return Answer{}, err
	}
	v.ending = Saved
	return own.outcome(Saved, nil)
}

// keeps returns what keeps the pieces of a large answer: in the same transaction. So it is nil where that is rolled
// back, and where there is no key.
func (h *txHandler[Tx]) keeps(ctx context.Context, x *exchange, tx Tx, own *recorder) func([][]byte) (*pieces, error) {
	if x.key.ID == "" || own.status >= http.StatusBadRequest {
		return nil
	}
	return func(rest [][]byte) (*pieces, error) {
		opts := pieceOptions(h.recv, x.route.Lifetime)
		return savePieces(h.recv, x.key, rest, func(key everonce.Key, piece []byte) error {
			_, err := everonce.DoTx(ctx, tx, h.recv, key, func(context.Context) ([]byte, error) { return piece, nil }, opts...)
			return err
		})
	}
}

// permanent returns the permanent failure that an error is; one inside what became of another
// operation is not this one's.
func permanent(err error) *everonce.PermanentError {
	if _, other := errors.AsType[*everonce.Error](err); other {
		return nil
	}
	p, _ := errors.AsType[*everonce.PermanentError](err)
	return p
}

// context returns the handler's context: it ends with the transaction's limit, and with the client only where the
// route says so.
func (h *txHandler[Tx]) context(inside context.Context, rt *route) (context.Context, context.CancelFunc) {
	ctx, end := inside, context.CancelFunc(func() {})
	if !rt.EndWithClient {
		ctx, end = context.WithTimeoutCause(context.WithoutCancel(inside), h.limit, everonce.ErrTxTooLong)
	}
	if rt.Deadline <= 0 {
		return ctx, end
	}
	ctx, cancel := context.WithTimeout(ctx, rt.Deadline)
	return ctx, func() { cancel(); end() }
}

// txWriter is the ResponseWriter of a handler in a transaction. It has no Unwrap: what it is given is sent
// after the commit, or never.
type txWriter struct{ own *recorder }

func (w *txWriter) Header() http.Header { return w.own.Header() }

func (w *txWriter) Write(p []byte) (int, error) { return w.own.Write(p) }

// WriteHeader sets the status. Informational answers sent before it are dropped: the transaction may still roll back.
func (w *txWriter) WriteHeader(status int) {
	if status >= http.StatusOK || status < http.StatusContinue { // the recorder says what is wrong with the latter
		w.own.WriteHeader(status)
	}
}

func (w *txWriter) MarkNotDone() { w.own.MarkNotDone() }

func (w *txWriter) MarkUnknown() { w.own.MarkUnknown() }
