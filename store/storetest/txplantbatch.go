package storetest

import (
	"context"

	"github.com/everonce/everonce"
)

// halfStore commits a batch with the records of its first half.
type halfStore[Tx any] struct{ everonce.TxStore[Tx] }

func (s *halfStore[Tx]) Begin(ctx context.Context, req everonce.BeginRequest) (everonce.TxHandle[Tx], everonce.ClaimResult, error) {
	h, res, err := s.TxStore.Begin(ctx, req)
	if many, ok := h.(everonce.TxBatch); ok {
		return &halfHandle[Tx]{h, many}, res, err
	}
	return h, res, err
}

type halfHandle[Tx any] struct {
	everonce.TxHandle[Tx]
	everonce.TxBatch
}

func (h *halfHandle[Tx]) CommitAll(ctx context.Context, reqs []everonce.CompleteRequest) error {
	return h.TxBatch.CommitAll(ctx, reqs[:len(reqs)/2])
}

// greedyStore tells a batch that what others are at is free.
type greedyStore[Tx any] struct{ everonce.TxStore[Tx] }

func (s *greedyStore[Tx]) Begin(ctx context.Context, req everonce.BeginRequest) (everonce.TxHandle[Tx], everonce.ClaimResult, error) {
	h, res, err := s.TxStore.Begin(ctx, req)
	if many, ok := h.(everonce.TxBatch); ok {
		return &greedyHandle[Tx]{h, many}, res, err
	}
	return h, res, err
}

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

// shuffledStore tells each key of a batch what the next one is.
type shuffledStore[Tx any] struct{ everonce.TxStore[Tx] }

func (s *shuffledStore[Tx]) Begin(ctx context.Context, req everonce.BeginRequest) (everonce.TxHandle[Tx], everonce.ClaimResult, error) {
	h, res, err := s.TxStore.Begin(ctx, req)
	if many, ok := h.(everonce.TxBatch); ok {
		return &shuffledHandle[Tx]{h, many}, res, err
	}
	return h, res, err
}

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
