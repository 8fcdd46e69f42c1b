package drivertest

import (
	"context"
	"sync"

	"github.com/everonce/everonce/driver"
)

// keysOfOneProcess knows only which keys the transactions of its process have, and takes all others for free.
type keysOfOneProcess[Tx any] struct {
	driver.TxStore[Tx]
	own sync.Map
}

func (s *keysOfOneProcess[Tx]) Begin(ctx context.Context, req driver.BeginRequest) (driver.TxHandle[Tx], driver.ClaimResult, error) {
	h, res, err := s.TxStore.Begin(ctx, req)
	if req.Claim == nil || err != nil {
		return h, res, err
	}
	if res.Decision == driver.DecideClaimed {
		s.own.Store(req.Claim.ID, true)
	}
	if _, own := s.own.Load(req.Claim.ID); !own && res.Decision == driver.DecideInProgress {
		res.Decision = driver.DecideClaimed // and a handle, which the suite does not come to
	}
	return h, res, err
}

// lapsedIsFree takes a claim whose lease ran out for one that has ended.
type lapsedIsFree[Tx any] struct{ driver.TxStore[Tx] }

func (s *lapsedIsFree[Tx]) Begin(ctx context.Context, req driver.BeginRequest) (driver.TxHandle[Tx], driver.ClaimResult, error) {
	h, res, err := s.TxStore.Begin(ctx, req)
	if err != nil || res.Decision != driver.DecideAbandoned || res.Record.State != driver.StateClaimed {
		return h, res, err
	}
	res.Decision = driver.DecideClaimed
	req.Claim = nil
	h, _, err = s.TxStore.Begin(ctx, req)
	return h, res, err
}

// unaskedHandle records without a look at the fingerprint.
type unaskedHandle[Tx any] struct{ driver.TxHandle[Tx] }

func (h *unaskedHandle[Tx]) Commit(ctx context.Context, req driver.CommitRequest) (driver.CommitResult, error) {
	if req.Record != nil {
		claim := *req.Record
		claim.Fingerprint = driver.Fingerprint{}
		req.Record = &claim
	}
	return h.TxHandle.Commit(ctx, req)
}

// unlockedHandle looks whether the token holds, and leaves it to others.
type unlockedHandle[Tx any] struct{ driver.TxHandle[Tx] }

func (h *unlockedHandle[Tx]) Renew(ctx context.Context, req driver.RenewRequest) (res driver.RenewResult, err error) {
	got, err := h.Get(ctx, driver.GetRequest{ID: req.ID})
	if err != nil {
		return res, err
	}
	if got.Record.Token != req.Token || got.Record.Nonce != req.Nonce || got.Record.State != driver.StateClaimed {
		return res, driver.ErrLeaseLost
	}
	return res, nil
}
