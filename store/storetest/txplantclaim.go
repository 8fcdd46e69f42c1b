package storetest

import (
	"context"
	"sync"

	"github.com/everonce/everonce"
)

// keysOfItsOwn knows which keys the transactions of its own process have, and takes all others for free.
type keysOfItsOwn[Tx any] struct {
	everonce.TxStore[Tx]
	own sync.Map
}

func (s *keysOfItsOwn[Tx]) Begin(ctx context.Context, req everonce.BeginRequest) (everonce.TxHandle[Tx], everonce.ClaimResult, error) {
	h, res, err := s.TxStore.Begin(ctx, req)
	if req.Claim == nil || err != nil {
		return h, res, err
	}
	if res.Decision == everonce.DecideClaimed {
		s.own.Store(req.Claim.ID, true)
	}
	if _, own := s.own.Load(req.Claim.ID); !own && res.Decision == everonce.DecideInProgress {
		res.Decision = everonce.DecideClaimed // and a handle, which the suite does not come to
	}
	return h, res, err
}

// lapsedIsFree takes a claim whose lease ran out for one that has ended.
type lapsedIsFree[Tx any] struct{ everonce.TxStore[Tx] }

func (s *lapsedIsFree[Tx]) Begin(ctx context.Context, req everonce.BeginRequest) (everonce.TxHandle[Tx], everonce.ClaimResult, error) {
	h, res, err := s.TxStore.Begin(ctx, req)
	if err != nil || res.Decision != everonce.DecideAbandoned || res.Record.State != everonce.StateClaimed {
		return h, res, err
	}
	res.Decision = everonce.DecideClaimed
	req.Claim = nil
	h, _, err = s.TxStore.Begin(ctx, req)
	return h, res, err
}

// unaskedHandle records without a look at the fingerprint.
type unaskedHandle[Tx any] struct{ everonce.TxHandle[Tx] }

func (h *unaskedHandle[Tx]) Commit(ctx context.Context, req everonce.CommitRequest) error {
	if req.Record != nil {
		claim := *req.Record
		claim.Fingerprint = everonce.Fingerprint{}
		req.Record = &claim
	}
	return h.TxHandle.Commit(ctx, req)
}

// unlockedHandle looks whether the token holds, and leaves it to others.
type unlockedHandle[Tx any] struct{ everonce.TxHandle[Tx] }

func (h *unlockedHandle[Tx]) Renew(ctx context.Context, req everonce.RenewRequest) error {
	got, err := h.Get(ctx, everonce.GetRequest{ID: req.ID})
	if err != nil {
		return err
	}
	if got.Record.Token != req.Token || got.Record.Nonce != req.Nonce || got.Record.State != everonce.StateClaimed {
		return everonce.ErrLeaseLost
	}
	return nil
}
