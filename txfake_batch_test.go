package everonce_test

import (
	"context"
	"time"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/store/transition"
)

// batchStore is a mapStore whose transactions have [everonce.TxBatch].
type batchStore struct{ *mapStore }

func (s batchStore) Begin(ctx context.Context, req everonce.BeginRequest) (everonce.TxHandle[*mapTx], everonce.ClaimResult, error) {
	h, res, err := s.mapStore.Begin(ctx, req)
	if m, ok := h.(*mapHandle); ok {
		return &batchHandle{m}, res, err
	}
	return h, res, err
}

type batchHandle struct{ *mapHandle }

var _ everonce.TxBatch = (*batchHandle)(nil)

func (h *batchHandle) ClaimAll(ctx context.Context, reqs []everonce.ClaimRequest) (all []everonce.ClaimResult, err error) {
	return all, h.statement(ctx, "tx.ClaimAll", reqs, func(now time.Time) error {
		for _, req := range reqs {
			if by := h.tx.s.locks[req.ID]; by != nil && by != h.tx {
				all = append(all, everonce.ClaimResult{Decision: everonce.DecideInProgress, Now: now})
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

func (h *batchHandle) CommitAll(ctx context.Context, reqs []everonce.CompleteRequest) error {
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
	if err != nil && h.tx.s.ClassifyTx(err) != everonce.TxErrorCommitLost {
		h.tx.Rollback()
	}
	return err
}
