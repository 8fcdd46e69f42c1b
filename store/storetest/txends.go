package storetest

import (
	"context"
	"errors"
	"fmt"

	"github.com/everonce/everonce"
)

// checkTxEnds has work end the transaction that it was lent: what is told and recorded then must hold, or be that nobody knows.
func checkTxEnds[Tx any](e *txEnv[Tx]) {
	if e.app.End == nil {
		e.Fatalf("storetest: the harness does not say how work ends the transaction that it was lent: TxHarness.End")
	}
	t := e.txReceiver(e.txs)
	for _, c := range []struct{ optimistic, commits, again, fails bool }{
		{commits: true},
		{},
		{commits: true, again: true},
		{again: true},
		{optimistic: true, commits: true},
		{optimistic: true},
		{commits: true, fails: true},
		{optimistic: true, commits: true, fails: true},
	} {
		key, name := e.key(), fmt.Sprintf("%+v", c)
		opts := []everonce.CallOption{fingerprintA}
		if c.optimistic {
			opts = append(opts, everonce.Optimistic())
		}
		deliver := func(end bool) (everonce.Result[string], error) {
			return everonce.Transact(e.ctx, t, key, func(ctx context.Context, tx Tx) (string, error) {
				if err := e.app.Apply(ctx, tx, key.ID); err != nil || !end {
					return "receipt", err
				}
				_ = e.app.End(ctx, tx, c.commits, c.again) //nolint:errcheck // a store may refuse it; the work does not look
				if c.fails {
					return "", errors.New("the work failed")
				}
				return "receipt", nil
			}, opts...)
		}
		res, err := deliver(true)
		effects, rec := e.count(key.ID), e.look(key.RecordID())
		if done := res.Outcome == everonce.Executed || rec.Found && rec.Record.State == everonce.StateCompleted; done && effects != 1 {
			e.Errorf("%s: told %v, %v, and recorded as %v, with %d effects", name, res.Outcome, err, rec.Record.State, effects)
		}
		if res.Outcome == everonce.Failed && effects != 0 {
			e.Errorf("%s: told failed, %v, with %d effects", name, err, effects)
		}
		again, err := deliver(false)
		if n := e.count(key.ID); n > 1 || n == 0 && err == nil {
			e.Errorf("%s: the repetition of what was told %v: %v, %v, with %d effects", name, res.Outcome, again.Outcome, err, n)
		}
	}
}

// doneAnyway records what has not been committed.
type doneAnyway[Tx any] struct{ everonce.TxStore[Tx] }

func (s *doneAnyway[Tx]) Begin(ctx context.Context, req everonce.BeginRequest) (everonce.TxHandle[Tx], everonce.ClaimResult, error) {
	h, res, err := s.TxStore.Begin(ctx, req)
	if err == nil && h != nil {
		h = &doneAnywayHandle[Tx]{TxHandle: h, s: s, claim: req.Claim}
	}
	return h, res, err
}

type doneAnywayHandle[Tx any] struct {
	everonce.TxHandle[Tx]
	s     *doneAnyway[Tx]
	claim *everonce.ClaimRequest
}

func (h *doneAnywayHandle[Tx]) Commit(ctx context.Context, req everonce.CommitRequest) error {
	err := h.TxHandle.Commit(ctx, req)
	if err == nil || req.Complete == nil {
		return err
	}
	claim := h.claim
	if req.Record != nil {
		claim = req.Record
	}
	own := *claim
	own.Nonce, own.Lease = everonce.NewNonce(), long
	res, claimErr := h.s.Claim(ctx, own)
	if claimErr == nil && res.Decision == everonce.DecideClaimed {
		done := *req.Complete
		done.Token, done.Nonce = res.Record.Token, own.Nonce
		_, _ = h.s.Complete(ctx, done) //nolint:errcheck // the mistake need not succeed
	}
	return err
}
