package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/driver/transition"
)

// mapHandle is a transaction as the engine uses it.
type mapHandle struct {
	rolledBack bool
	tx         *mapTx
	joined     bool
}

func (h *mapHandle) Tx() *mapTx { return h.tx }

// statement runs one statement of the engine.
func (h *mapHandle) statement(ctx context.Context, method string, req any, do func(now time.Time) error) error {
	return h.tx.s.run(ctx, method, req, func() error {
		h.tx.s.mu.Lock()
		defer h.tx.s.mu.Unlock()
		if err := h.tx.usable(); err != nil {
			return err
		}
		return do(time.Now())
	})
}

func (h *mapHandle) Claim(ctx context.Context, req driver.ClaimRequest) (res driver.ClaimResult, err error) {
	err = h.statement(ctx, "tx.Claim", req, func(now time.Time) error {
		res = driver.ClaimResult{Decision: driver.DecideInProgress, Now: now}
		if by := h.tx.s.locks[req.ID]; by != nil && by != h.tx {
			return nil
		}
		next, claim, err := transition.Claim(h.tx.record(req.ID), req, now)
		if res = claim; err == nil && next != nil {
			h.write(req.ID, next)
		}
		return err
	})
	return res, err
}

func (h *mapHandle) write(id everonce.RecordID, rec *driver.Record) {
	h.tx.written.records[id] = *rec
	h.tx.written.locks[id] = true
	h.tx.s.locks[id] = h.tx
}

func (h *mapHandle) complete(req driver.CompleteRequest, now time.Time) error {
	next, err := transition.Complete(h.tx.record(req.ID), req, now)
	if err != nil {
		return driver.ErrConflict
	}
	if next != nil {
		h.write(req.ID, next)
	}
	return nil
}

func (h *mapHandle) recordDone(claim driver.ClaimRequest, done driver.CompleteRequest, now time.Time) error {
	if by := h.tx.s.locks[claim.ID]; by != nil && by != h.tx {
		return driver.ErrConflict
	}
	next, err := transition.Record(h.tx.record(claim.ID), claim, done, now)
	if err == nil {
		h.write(claim.ID, next)
	}
	return err
}

func (h *mapHandle) Complete(ctx context.Context, req driver.CompleteRequest) (res driver.CompleteResult, err error) {
	return res, h.statement(ctx, "tx.Complete", req, func(now time.Time) error { return h.complete(req, now) })
}

func (h *mapHandle) Record(ctx context.Context, req driver.RecordRequest) (res driver.RecordResult, err error) {
	return res, h.statement(ctx, "tx.Record", req, func(now time.Time) error { return h.recordDone(req.Claim, req.Complete, now) })
}

func (h *mapHandle) Get(ctx context.Context, req driver.GetRequest) (res driver.GetResult, err error) {
	return res, h.statement(ctx, "tx.Get", req, func(now time.Time) error {
		res.Now = now
		if rec := h.tx.record(req.ID); rec != nil && !rec.GoneAt(now) {
			res.Found, res.Record = true, *rec
		}
		return nil
	})
}

func (h *mapHandle) Renew(ctx context.Context, req driver.RenewRequest) (res driver.RenewResult, err error) {
	return res, h.statement(ctx, "tx.Renew", req, func(now time.Time) error {
		if by := h.tx.s.locks[req.ID]; by != nil && by != h.tx {
			return errDeadlock // where a database would wait
		}
		next, err := transition.Renew(h.tx.record(req.ID), req, now)
		if err == nil {
			h.write(req.ID, next)
		}
		return err
	})
}

func (h *mapHandle) Savepoint(ctx context.Context, name string) error {
	return h.statement(ctx, "Savepoint", name, func(time.Time) error {
		h.tx.points = append(h.tx.points, savepoint{name, h.tx.written.clone()})
		return nil
	})
}

func (h *mapHandle) point(name string) (int, error) {
	for i := len(h.tx.points) - 1; i >= 0; i-- {
		if h.tx.points[i].name == name {
			return i, nil
		}
	}
	return 0, fmt.Errorf("no savepoint %q", name)
}

func (h *mapHandle) RollbackTo(ctx context.Context, name string) error {
	return h.tx.s.run(ctx, "RollbackTo", name, func() error {
		h.tx.s.mu.Lock()
		defer h.tx.s.mu.Unlock()
		if err := h.tx.usable(); err != nil && !errors.Is(err, errTxAborted) {
			return err
		}
		i, err := h.point(name)
		if err != nil {
			return err
		}
		p := h.tx.points[i]
		for id := range h.tx.written.locks {
			if !p.written.locks[id] {
				delete(h.tx.s.locks, id)
			}
		}
		h.tx.points = h.tx.points[:i+1]
		h.tx.written = p.written.clone()
		h.tx.aborted = false
		return nil
	})
}

func (h *mapHandle) ReleaseSavepoint(ctx context.Context, name string) error {
	return h.statement(ctx, "ReleaseSavepoint", name, func(time.Time) error {
		i, err := h.point(name)
		if err == nil {
			h.tx.points = h.tx.points[:i]
		}
		return err
	})
}

func (h *mapHandle) Commit(ctx context.Context, req driver.CommitRequest) (res driver.CommitResult, err error) {
	if h.joined {
		return res, errors.New("the transaction is the caller's")
	}
	err = h.statement(ctx, "Commit's writes", req, func(now time.Time) error {
		switch {
		case req.Record != nil:
			if err := h.recordDone(*req.Record, *req.Complete, now); err != nil {
				return err
			}
		case req.Complete != nil:
			if err := h.complete(*req.Complete, now); err != nil {
				return err
			}
		}
		if req.SaveStep != nil {
			rec := h.tx.record(req.SaveStep.ID)
			if rec != nil {
				if step, ok := rec.Step(req.SaveStep.Step.Name); ok && (step.State == driver.StepDone || step.State == driver.StepNotDone && step.Attempt == req.SaveStep.Step.Attempt) {
					return everonce.ErrLeaseLost
				}
			}
			next, err := transition.SaveStep(rec, *req.SaveStep, now)
			if err != nil {
				return err
			}
			h.write(req.SaveStep.ID, next)
		}
		return nil
	})
	if err == nil { // what was written is locked by now
		err = h.statement(ctx, "Commit", req, func(time.Time) error { return h.tx.commit() })
	}
	if err != nil && h.tx.s.ClassifyTx(err) != driver.TxErrorCommitLost {
		h.tx.Rollback()
	}
	return res, err
}

func (h *mapHandle) Rollback(ctx context.Context) error {
	if h.joined {
		return errors.New("the transaction is the caller's")
	}
	return h.tx.s.run(ctx, "Rollback", nil, func() error {
		if h.rolledBack {
			h.tx.s.mu.Lock()
			h.tx.s.again++
			h.tx.s.mu.Unlock()
		}
		h.rolledBack = true
		h.tx.Rollback()
		return nil
	})
}
