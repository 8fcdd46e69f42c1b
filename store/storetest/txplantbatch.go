package storetest

import (
	"context"

	"github.com/everonce/everonce"
)

// halfHandle commits a batch with the records of its first half.
type halfHandle[Tx any] struct {
	everonce.TxHandle[Tx]
	everonce.TxBatch
}

func (h *halfHandle[Tx]) CommitAll(ctx context.Context, reqs []everonce.CompleteRequest) error {
	return h.TxBatch.CommitAll(ctx, reqs[:len(reqs)/2])
}

// greedyHandle tells a batch that what others are at is free.
type greedyHandle[Tx any] struct {
	everonce.TxHandle[Tx]
	everonce.TxBatch
}

func (h *greedyHandle[Tx]) ClaimAll(ctx context.Context, reqs []everonce.ClaimRequest) ([]everonce.ClaimResult, error) {
	all, err := h.TxBatch.ClaimAll(ctx, reqs)
	for i := range all {
		if all[i].Decision == everonce.DecideInProgress {
			all[i].Decision = everonce.DecideClaimed
		}
	}
	return all, err
}

// shuffledHandle tells each key of a batch what the next one is.
type shuffledHandle[Tx any] struct {
	everonce.TxHandle[Tx]
	everonce.TxBatch
}

func (h *shuffledHandle[Tx]) ClaimAll(ctx context.Context, reqs []everonce.ClaimRequest) ([]everonce.ClaimResult, error) {
	all, err := h.TxBatch.ClaimAll(ctx, reqs)
	if len(all) > 1 {
		all = append(all[1:], all[0])
	}
	return all, err
}
