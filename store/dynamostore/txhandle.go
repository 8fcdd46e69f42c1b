package dynamostore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/driver/transition"
)

// txHandle is one open transaction.
type txHandle struct {
	tx    *Tx
	own   bool      // begun here, and not the caller's
	until time.Time // zero: it has no bound
}

var errNotOurs = fmt.Errorf("dynamostore: %w: the caller must end its own transaction", driver.ErrInvalidArgument)

func (h *txHandle) Tx() *Tx { return h.tx }

func (h *txHandle) running() error {
	switch {
	case h.tx.ended:
		return errEnded
	case !h.until.IsZero() && !time.Now().Before(h.until):
		return fmt.Errorf("dynamostore: %w", driver.ErrTxTooLong)
	}
	return nil
}

func (h *txHandle) decide(ctx context.Context, what string, id driver.RecordID, decide decision) error {
	if err := h.running(); err != nil {
		return err
	}
	return wrapError(what, h.tx.decide(ctx, id, decide))
}

func (h *txHandle) Claim(ctx context.Context, req driver.ClaimRequest) (driver.ClaimResult, error) {
	return h.claim(ctx, req)
}

func (h *txHandle) claim(ctx context.Context, req driver.ClaimRequest) (res driver.ClaimResult, err error) {
	var mine *driver.Record
	isNew := false
	err = h.decide(ctx, "claim", req.ID, func(rec *driver.Record, now time.Time) (next *driver.Record, err error) {
		if mine != nil { // the item has changed since: another was first, or a purge has removed what was over
			if isNew && rec == nil {
				return mine, nil
			}
			return nil, driver.ErrConflict
		}
		if rec != nil && isHere(rec) && rec.Nonce != req.Nonce {
			res = driver.ClaimResult{Decision: driver.DecideInProgress, Record: *rec, Now: now}
			return nil, nil
		}
		isNew = rec == nil || rec.GoneAt(now)
		if next, res, err = transition.Claim(rec, req, now); next != nil {
			next.LeaseUntil = time.Time{}
			mine = next
		}
		return next, err
	})
	return res, err
}

// isHere reports whether a record was claimed by the transaction itself: then it has no lease.
func isHere(rec *driver.Record) bool {
	return rec.State == driver.StateClaimed && rec.LeaseUntil.IsZero()
}

func (h *txHandle) Complete(ctx context.Context, req driver.CompleteRequest) (res driver.CompleteResult, err error) {
	if err := fits("complete", len(req.Result.Data)); err != nil {
		return res, err
	}
	return res, h.decide(ctx, "complete", req.ID, func(rec *driver.Record, now time.Time) (*driver.Record, error) {
		next, err := transition.Complete(rec, req, now)
		return next, conflict(err)
	})
}

// conflict: whatever another attempt did first is one.
func conflict(err error) error {
	if errors.Is(err, driver.ErrLeaseLost) {
		return driver.ErrConflict
	}
	return err
}

func (h *txHandle) Record(_ context.Context, req driver.RecordRequest) (res driver.RecordResult, err error) {
	if err := fits("record", len(req.Complete.Result.Data)); err != nil {
		return res, err
	}
	if err := h.running(); err != nil {
		return res, err
	}
	// The key is new, as a guess: otherwise the commit fails, and returns the existing item.
	return res, wrapError("record", h.tx.keep(req.Claim.ID, h.tx.records[req.Claim.ID], func(rec *driver.Record, now time.Time) (*driver.Record, error) {
		return transition.Record(rec, req.Claim, req.Complete, now)
	}))
}

func (h *txHandle) Get(ctx context.Context, req driver.GetRequest) (res driver.GetResult, err error) {
	if err := h.running(); err != nil {
		return res, err
	}
	p, known := h.tx.records[req.ID]
	if !known {
		return h.tx.s.Get(ctx, req)
	}
	res.Now = h.tx.s.now()
	if res.Found = !p.next.GoneAt(res.Now); res.Found {
		res.Record = *p.next
	}
	return res, nil
}

func (h *txHandle) Renew(ctx context.Context, req driver.RenewRequest) (res driver.RenewResult, err error) {
	req.Lease += h.tx.s.skew
	return res, h.decide(ctx, "renew", req.ID, func(rec *driver.Record, now time.Time) (*driver.Record, error) {
		return transition.Renew(rec, req, now)
	})
}

func (h *txHandle) Savepoint(_ context.Context, name string) error {
	if err := h.running(); err != nil {
		return err
	}
	h.tx.save(name)
	return nil
}

func (h *txHandle) RollbackTo(_ context.Context, name string) error {
	if err := h.running(); err != nil {
		return err
	}
	return h.tx.rollbackTo(name)
}

func (h *txHandle) ReleaseSavepoint(context.Context, string) error { return h.running() }

func (h *txHandle) Commit(ctx context.Context, req driver.CommitRequest) (res driver.CommitResult, err error) {
	if !h.own {
		return res, errNotOurs
	}
	if err = h.last(ctx, &req); err == nil {
		err = wrapError("commit", h.tx.commit(ctx)) // once it is sent, the transaction's time cuts nothing short
	}
	h.tx.Rollback()
	return res, err
}

// last does what rides on the commit, if there is still time.
func (h *txHandle) last(ctx context.Context, req *driver.CommitRequest) (err error) {
	switch {
	case req.Record != nil && req.Complete != nil:
		_, err = h.Record(ctx, driver.RecordRequest{Claim: *req.Record, Complete: *req.Complete})
	case req.Complete != nil:
		_, err = h.Complete(ctx, *req.Complete)
	default:
		err = h.running()
	}
	if err != nil || req.SaveStep == nil {
		return err
	}
	step := *req.SaveStep
	if step.Lease > 0 {
		step.Lease += h.tx.s.skew
	}
	return h.decide(ctx, "save step", step.ID, func(rec *driver.Record, now time.Time) (*driver.Record, error) {
		if rec != nil {
			if old, ok := rec.Step(step.Step.Name); ok && !isPending(&old, step.Step.Attempt) {
				return nil, driver.ErrLeaseLost
			}
		}
		return saveStep(rec, step, now)
	})
}

// isPending reports whether the effect of a step is known not to have taken hold yet, and its attempt did not learn
// that it failed: the effect commits with the step.
func isPending(old *driver.StepRecord, attempt int) bool {
	return old.State == driver.StepOpen || old.State == driver.StepNotDone && old.Attempt < attempt
}

func (h *txHandle) Rollback(context.Context) error {
	if !h.own {
		return errNotOurs
	}
	h.tx.Rollback()
	return nil
}
