package mongostore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/driver/transition"
)

// txHandle is one open transaction.
type txHandle struct {
	s       *Store
	tx      *mongo.Session
	in      func(context.Context) context.Context // makes a call part of the transaction
	own     bool                                  // begun here, and not the caller's
	until   time.Time                             // zero: it has no bound here, or the caller's
	claimed map[driver.RecordID]*driver.Record
	ended   bool
}

func newHandle(s *Store, tx *mongo.Session) *txHandle {
	return &txHandle{s: s, tx: tx, in: func(ctx context.Context) context.Context { return mongo.NewSessionContext(ctx, tx) }}
}

var (
	errNoTx         = errors.New("mongostore: the session is in no transaction (return from the work instead of ending the transaction)")
	errCommitLost   = errors.New("mongostore: the answer to the commit was lost")
	errNotOurs      = fmt.Errorf("mongostore: %w: the caller must end its own transaction", driver.ErrInvalidArgument)
	errNoSavepoints = errors.New("mongostore: MongoDB has no savepoints (roll back the whole transaction)")
)

// abortTimeout bounds what ends a transaction whose caller does not wait any more.
const abortTimeout = 5 * time.Second

// within runs statements in the transaction, until its time is over.
func (h *txHandle) within(ctx context.Context, fn func(ctx context.Context) error) error {
	if err := h.running(); err != nil {
		return err
	}
	ctx = h.in(ctx)
	if h.until.IsZero() {
		return fn(ctx)
	}
	bound, cancel := context.WithDeadlineCause(ctx, h.until, driver.ErrTxTooLong)
	defer cancel()
	err := bound.Err()
	if err == nil {
		err = fn(bound)
	}
	if err != nil && bound.Err() != nil && ctx.Err() == nil {
		return fmt.Errorf("mongostore: %w: %w", driver.ErrTxTooLong, err)
	}
	return err
}

func (h *txHandle) Tx() *mongo.Session { return h.tx }

func (h *txHandle) Claim(ctx context.Context, req driver.ClaimRequest) (driver.ClaimResult, error) {
	res, err := h.claim(ctx, &req, false)
	return res, wrapError(ctx, "claim", err)
}

func (h *txHandle) Complete(ctx context.Context, req driver.CompleteRequest) (res driver.CompleteResult, err error) {
	if err := fits("complete", len(req.Result.Data)); err != nil {
		return res, err
	}
	return res, wrapError(ctx, "complete", h.conflict(h.within(ctx, func(ctx context.Context) error { return h.complete(ctx, req) })))
}

func (h *txHandle) complete(ctx context.Context, req driver.CompleteRequest) error {
	req.Lifetime = wholeLife(req.Lifetime)
	return h.change(ctx, &req.ID, func(rec *driver.Record, now time.Time) (*driver.Record, error) {
		if c := h.claimed[req.ID]; c != nil && (rec == nil || rec.Token < c.Token) {
			if rec != nil && !rec.GoneAt(now) && rec.State != driver.StateReleased { // claimed by another meanwhile
				return nil, driver.ErrConflict
			}
			rec = c
		}
		next, err := transition.Complete(rec, req, now)
		if errors.Is(err, driver.ErrLeaseLost) {
			err = driver.ErrConflict
		}
		return next, err
	})
}

// conflict: whatever another transaction did first is one.
func (h *txHandle) conflict(err error) error {
	if err != nil && conflicts(err) {
		return fmt.Errorf("%w: %w", driver.ErrConflict, err)
	}
	return err
}

func (h *txHandle) Record(ctx context.Context, req driver.RecordRequest) (res driver.RecordResult, err error) {
	if err := fits("record", len(req.Complete.Result.Data)); err != nil {
		return res, err
	}
	return res, wrapError(ctx, "record", h.conflict(h.within(ctx, func(ctx context.Context) error { return h.record(ctx, req.Claim, req.Complete) })))
}

func (h *txHandle) record(ctx context.Context, claim driver.ClaimRequest, done driver.CompleteRequest) error {
	claim.Lifetime, done.Lifetime = wholeLife(claim.Lifetime), wholeLife(done.Lifetime)
	return h.change(ctx, &claim.ID, func(rec *driver.Record, now time.Time) (*driver.Record, error) {
		return transition.Record(rec, claim, done, now)
	})
}

func (h *txHandle) Get(ctx context.Context, req driver.GetRequest) (res driver.GetResult, err error) {
	err = h.within(ctx, func(ctx context.Context) error {
		res, err = h.s.get(ctx, req)
		return err
	})
	return res, err
}

func (h *txHandle) Renew(ctx context.Context, req driver.RenewRequest) (res driver.RenewResult, err error) {
	return res, wrapError(ctx, "renew", h.within(ctx, func(ctx context.Context) error {
		req.Lease, req.Lifetime = whole(req.Lease), wholeLife(req.Lifetime)
		return h.change(ctx, &req.ID, func(rec *driver.Record, now time.Time) (*driver.Record, error) {
			return transition.Renew(rec, req, now)
		})
	}))
}

// Savepoint marks nothing: see [TxStore].
func (h *txHandle) Savepoint(context.Context, string) error { return h.running() }

// RollbackTo is refused: the engine takes it that the transaction is doomed.
func (h *txHandle) RollbackTo(context.Context, string) error { return errNoSavepoints }

// ReleaseSavepoint succeeds while the transaction runs.
func (h *txHandle) ReleaseSavepoint(context.Context, string) error { return h.running() }

// running fails unless the session is in a transaction: otherwise the driver would send a write outside of it.
func (h *txHandle) running() error {
	switch {
	case h.ended:
		return errors.New("mongostore: the transaction has ended")
	case h.tx != nil && !h.tx.TransactionRunning():
		return errNoTx
	}
	return nil
}

func (h *txHandle) Commit(ctx context.Context, req driver.CommitRequest) (res driver.CommitResult, err error) {
	return res, h.commit(ctx, req)
}

func (h *txHandle) commit(ctx context.Context, req driver.CommitRequest) error {
	if !h.own {
		return errNotOurs
	}
	if err := h.last(ctx, &req); err != nil {
		h.abort()
		return err
	}
	err := h.tx.CommitTransaction(h.in(ctx)) // once it is sent, the transaction's time cuts nothing short
	switch {
	case err == nil:
		h.end()
		return nil
	case lost(err): // it may have committed: there is nothing to abort
		h.end()
		return fmt.Errorf("%w: %w", errCommitLost, err)
	}
	h.abort()
	return wrapError(ctx, "commit", err)
}

// lost reports whether the outcome of a commit is unknown.
func lost(err error) bool {
	return labelled(err, labelUnknown) || mongo.IsNetworkError(err) || mongo.IsTimeout(err) || errors.Is(err, context.Canceled)
}

// last does what rides on the commit, if there is still time.
func (h *txHandle) last(ctx context.Context, req *driver.CommitRequest) error {
	switch {
	case req.Record != nil && req.Complete != nil:
		if _, err := h.Record(ctx, driver.RecordRequest{Claim: *req.Record, Complete: *req.Complete}); err != nil {
			return err
		}
	case req.Complete != nil:
		if _, err := h.Complete(ctx, *req.Complete); err != nil {
			return err
		}
	}
	if req.SaveStep == nil {
		return h.within(ctx, func(context.Context) error { return nil })
	}
	step := *req.SaveStep
	step.Lease, step.Lifetime = whole(step.Lease), wholeLife(step.Lifetime)
	return wrapError(ctx, "save step", h.within(ctx, func(ctx context.Context) error {
		return h.change(ctx, &step.ID, func(rec *driver.Record, now time.Time) (*driver.Record, error) {
			if rec != nil {
				if old, ok := rec.Step(step.Step.Name); ok && !pending(&old, step.Step.Attempt) {
					return nil, driver.ErrLeaseLost
				}
			}
			return saveStep(rec, step, now)
		})
	}))
}

// pending reports whether the effect of a step is known not to have taken hold yet, and its attempt did not learn that
// it failed: the effect commits with the step.
func pending(old *driver.StepRecord, attempt int) bool {
	return old.State == driver.StepOpen || old.State == driver.StepNotDone && old.Attempt < attempt
}

func (h *txHandle) Rollback(context.Context) error {
	if !h.own {
		return errNotOurs
	}
	if h.ended {
		return nil
	}
	err := h.running()
	h.abort()
	return err
}

// abort ends the transaction. A server that cannot be reached ends it after a time, as it does with every transaction
// that is not committed.
func (h *txHandle) abort() {
	ctx, cancel := context.WithTimeout(context.Background(), abortTimeout)
	defer cancel()
	_ = h.tx.AbortTransaction(ctx) //nolint:errcheck // as above
	h.end()
}

func (h *txHandle) end() {
	h.ended = true
	h.tx.EndSession(context.Background())
}
