package drivertest

import (
	"context"

	"github.com/everonce/everonce/driver"
)

// halfHandle commits a batch with the records of its first half.
type halfHandle[Tx any] struct {
	driver.TxHandle[Tx]
	driver.TxBatch
}

func (h *halfHandle[Tx]) CommitAll(ctx context.Context, req driver.CommitAllRequest) (driver.CommitAllResult, error) {
	req.Completions = req.Completions[:len(req.Completions)/2]
	return h.TxBatch.CommitAll(ctx, req)
}

// greedyHandle grants a batch keys that others hold.
type greedyHandle[Tx any] struct {
	driver.TxHandle[Tx]
	driver.TxBatch
}

func (h *greedyHandle[Tx]) ClaimAll(ctx context.Context, req driver.ClaimAllRequest) (driver.ClaimAllResult, error) {
	res, err := h.TxBatch.ClaimAll(ctx, req)
	for i := range res.Claims {
		if res.Claims[i].Decision == driver.DecideInProgress {
			res.Claims[i].Decision = driver.DecideClaimed
		}
	}
	return res, err
}

// shuffledHandle returns for each key of a batch the answer of the next one.
type shuffledHandle[Tx any] struct {
	driver.TxHandle[Tx]
	driver.TxBatch
}

func (h *shuffledHandle[Tx]) ClaimAll(ctx context.Context, req driver.ClaimAllRequest) (driver.ClaimAllResult, error) {
	res, err := h.TxBatch.ClaimAll(ctx, req)
	if len(res.Claims) > 1 {
		res.Claims = append(res.Claims[1:], res.Claims[0])
	}
	return res, err
}
