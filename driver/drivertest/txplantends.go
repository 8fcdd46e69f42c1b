package drivertest

import (
	"context"

	"github.com/everonce/everonce/driver"
)

// doneAnyway records what has not been committed.
type doneAnyway[Tx any] struct{ driver.TxStore[Tx] }

func (s *doneAnyway[Tx]) Begin(ctx context.Context, req driver.BeginRequest) (driver.TxHandle[Tx], driver.ClaimResult, error) {
	h, res, err := s.TxStore.Begin(ctx, req)
	if err != nil || h == nil {
		return h, res, err
	}
	anyway := &doneAnywayHandle[Tx]{TxHandle: h, s: s, claim: req.Claim}
	if many, ok := h.(driver.TxBatch); ok {
		return &doneAnywayBatch[Tx]{doneAnywayHandle: anyway, many: many}, res, nil
	}
	return anyway, res, nil
}

type doneAnywayHandle[Tx any] struct {
	driver.TxHandle[Tx]
	s     *doneAnyway[Tx]
	claim *driver.ClaimRequest
}

func (h *doneAnywayHandle[Tx]) Commit(ctx context.Context, req driver.CommitRequest) error {
	err := h.TxHandle.Commit(ctx, req)
	if err == nil || req.Complete == nil {
		return err
	}
	claim := h.claim
	if req.Record != nil {
		claim = req.Record
	}
	h.s.record(ctx, *claim, *req.Complete)
	return err
}

// record records it by itself.
func (s *doneAnyway[Tx]) record(ctx context.Context, claim driver.ClaimRequest, done driver.CompleteRequest) {
	claim.Nonce, claim.Lease = driver.NewNonce(), long
	res, err := s.Claim(ctx, claim)
	if err == nil && res.Decision == driver.DecideClaimed {
		done.Token, done.Nonce = res.Record.Token, claim.Nonce
		_, _ = s.Complete(ctx, done) //nolint:errcheck // the mistake need not succeed
	}
}

// doneAnywayBatch does the same with a batch.
type doneAnywayBatch[Tx any] struct {
	*doneAnywayHandle[Tx]
	many   driver.TxBatch
	claims []driver.ClaimRequest
}

func (h *doneAnywayBatch[Tx]) ClaimAll(ctx context.Context, reqs []driver.ClaimRequest) ([]driver.ClaimResult, error) {
	h.claims = reqs
	return h.many.ClaimAll(ctx, reqs)
}

func (h *doneAnywayBatch[Tx]) CommitAll(ctx context.Context, reqs []driver.CompleteRequest) error {
	err := h.many.CommitAll(ctx, reqs)
	if err == nil {
		return nil
	}
	for i, req := range reqs {
		h.s.record(ctx, h.claims[i], req) // all of them were granted
	}
	return err
}

// quietHandle does not tell that there was nothing to roll back.
type quietHandle[Tx any] struct{ driver.TxHandle[Tx] }

func (h *quietHandle[Tx]) Rollback(ctx context.Context) error {
	_ = h.TxHandle.Rollback(ctx) //nolint:errcheck // the mistake
	return nil
}
