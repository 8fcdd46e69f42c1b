package engine

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

func (h *batchHandle) ClaimAll(ctx context.Context, all driver.ClaimAllRequest) (res driver.ClaimAllResult, err error) {
	err = h.statement(ctx, "tx.ClaimAll", all, func(now time.Time) error {
		for _, req := range all.Claims {
			if by := h.tx.s.locks[req.ID]; by != nil && by != h.tx {
				res.Claims = append(res.Claims, driver.ClaimResult{Decision: driver.DecideInProgress, Now: now})
				continue
			}
			next, claim, err := transition.Claim(h.tx.record(req.ID), req, now)
			if err != nil {
				return err
			}
			if next != nil {
				h.write(req.ID, next)
			}
			res.Claims = append(res.Claims, claim)
		}
		return nil
	})
	return res, err
}

func (h *batchHandle) CommitAll(ctx context.Context, all driver.CommitAllRequest) (res driver.CommitAllResult, err error) {
	err = h.statement(ctx, "CommitAll's writes", all, func(now time.Time) error {
		for _, req := range all.Completions {
			if err := h.complete(req, now); err != nil {
				return err
			}
		}
		return nil
	})
	if err == nil {
		err = h.statement(ctx, "Commit", all, func(time.Time) error { return h.tx.commit() })
	}
	if err != nil && h.tx.s.ClassifyTx(err) != driver.TxErrorCommitLost {
		h.tx.Rollback()
	}
	return res, err
}
