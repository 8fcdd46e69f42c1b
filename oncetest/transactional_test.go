package oncetest

import (
	"context"
	"errors"
	"testing"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/internal/testing/memtx"
)

var errNoFunds = errors.New("the account is empty")

// transactional is a service whose effect is in the same database as the record.
func transactional(joined, optimistic bool) Subject {
	c := capabilities
	c.Compensations = false
	var serve func(tb testing.TB, db *memtx.DB, f *Faults) System
	serve = func(tb testing.TB, db *memtx.DB, f *Faults) System {
		tb.Helper()
		recv, err := everonce.NewTxReceiver(FaultTxStore[*memtx.Tx](db, f.Plan()), &everonce.Options{Optimistic: optimistic})
		if err != nil {
			tb.Fatal(err)
		}
		return System{
			Deliver: func(ctx context.Context, op Operation) Answer {
				key := everonce.Key{Scope: everonce.ScopeOf(op.Client), ID: op.Key}
				add := func(tx *memtx.Tx) (int, error) {
					if op.Rejected {
						return 0, everonce.Permanent("no_funds", errNoFunds, nil)
					}
					return op.Amount, f.Effect(ctx, op.Key, func() error { return tx.Add(op.Client + "/" + op.Key) })
				}
				if !joined {
					return AnswerOf(everonce.Transact(ctx, recv, key, func(_ context.Context, tx *memtx.Tx) (int, error) {
						return add(tx)
					}, everonce.FingerprintOf(op.Amount)))
				}
				h, _, err := db.Begin(ctx, driver.BeginRequest{})
				if err != nil {
					return Answer{Outcome: everonce.Failed, Err: err}
				}
				res, err := everonce.DoTx(ctx, h.Tx(), recv, key, func(context.Context) (int, error) { return add(h.Tx()) },
					everonce.FingerprintOf(op.Amount))
				if errors.Is(err, everonce.ErrTxDoomed) {
					return AnswerOf(res, errors.Join(err, h.Rollback(ctx)))
				}
				if _, commitErr := h.Commit(ctx, driver.CommitRequest{}); commitErr != nil {
					return Answer{Outcome: everonce.Failed, Err: commitErr}
				}
				return AnswerOf(res, err)
			},
			Effects: func(_ context.Context, op Operation) (int, error) {
				return db.Count(op.Client + "/" + op.Key), nil
			},
			Restart: func(f *Faults) System {
				if n := db.Held(); n > 0 {
					tb.Errorf("the process is gone, and %d keys are held by transactions of its", n)
				}
				return serve(tb, db, f)
			},
		}
	}
	return Subject{
		Mode: Transactional, Capabilities: c, Bubble: true,
		New: func(tb testing.TB, f *Faults) System {
			db := memtx.New()
			tb.Cleanup(func() {
				if n := db.Held(); n > 0 {
					tb.Errorf("%d transactions were left open", n)
				}
			})
			return serve(tb, db, f)
		},
	}
}

func TestRunTransactional(t *testing.T) {
	t.Run("transact", func(t *testing.T) { Run(t, transactional(false, false)) })
	t.Run("optimistic", func(t *testing.T) { Run(t, transactional(false, true)) })
	t.Run("caller's transaction", func(t *testing.T) { Run(t, transactional(true, false)) })
}
