package enginetest

import (
	"context"
	"time"

	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/driver/transition"
)

// batchStore is a mapStore whose transactions have [driver.TxBatch].
type batchStore struct{ *mapStore }

func (s batchStore) Begin(ctx context.Context, req driver.BeginRequest) (driver.TxHandle[*mapTx], driver.ClaimResult, error) {
	h, res, err := s.mapStore.Begin(ctx, req)
	if m, ok := h.(*mapHandle); ok {
		return &batchHandle{m}, res, err
	}
	return h, res, err
}

type batchHandle struct{ *mapHandle }

var _ driver.TxBatch = (*batchHandle)(nil)

func (h *batchHandle) ClaimAll(ctx context.Context, reqs []driver.ClaimRequest) (all []driver.ClaimResult, err error) {
	return all, h.statement(ctx, "tx.ClaimAll", reqs, func(now time.Time) error {
		for _, req := range reqs {
			if by := h.tx.s.locks[req.ID]; by != nil && by != h.tx {
				all = append(all, driver.ClaimResult{Decision: driver.DecideInProgress, Now: now})
				continue
			}
			next, res, err := transition.Claim(h.tx.record(req.ID), req, now)
			if err != nil {
				return err
			}
			if next != nil {
				h.write(req.ID, next)
			}
			all = append(all, res)
		}
		return nil
	})
}

func (h *batchHandle) CommitAll(ctx context.Context, reqs []driver.CompleteRequest) error {
	err := h.statement(ctx, "CommitAll's writes", reqs, func(now time.Time) error {
		for _, req := range reqs {
			if err := h.complete(req, now); err != nil {
				return err
			}
		}
		return nil
	})
	if err == nil {
		err = h.statement(ctx, "Commit", reqs, func(time.Time) error { return h.tx.commit() })
	}
	if err != nil && h.tx.s.ClassifyTx(err) != driver.TxErrorCommitLost {
		h.tx.Rollback()
	}
	return err
}
