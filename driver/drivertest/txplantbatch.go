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

func (h *halfHandle[Tx]) CommitAll(ctx context.Context, reqs []driver.CompleteRequest) error {
	return h.TxBatch.CommitAll(ctx, reqs[:len(reqs)/2])
}

// greedyHandle tells a batch that what others are at is free.
type greedyHandle[Tx any] struct {
	driver.TxHandle[Tx]
	driver.TxBatch
}

func (h *greedyHandle[Tx]) ClaimAll(ctx context.Context, reqs []driver.ClaimRequest) ([]driver.ClaimResult, error) {
	all, err := h.TxBatch.ClaimAll(ctx, reqs)
	for i := range all {
		if all[i].Decision == driver.DecideInProgress {
			all[i].Decision = driver.DecideClaimed
		}
	}
	return all, err
}

// shuffledHandle tells each key of a batch what the next one is.
type shuffledHandle[Tx any] struct {
	driver.TxHandle[Tx]
	driver.TxBatch
}

func (h *shuffledHandle[Tx]) ClaimAll(ctx context.Context, reqs []driver.ClaimRequest) ([]driver.ClaimResult, error) {
	all, err := h.TxBatch.ClaimAll(ctx, reqs)
	if len(all) > 1 {
		all = append(all[1:], all[0])
	}
	return all, err
}
