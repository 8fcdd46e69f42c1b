package engine

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/driver"
)

// transacting are the calls that begin a transaction. Their work sees the end of ctx.
func transacting(t *testing.T) map[string]func(ctx context.Context, s *mapStore, x *everonce.TxReceiver[*mapTx], w txWork) error {
	t.Helper()
	return map[string]func(ctx context.Context, s *mapStore, x *everonce.TxReceiver[*mapTx], w txWork) error{
		"Transact": func(ctx context.Context, _ *mapStore, x *everonce.TxReceiver[*mapTx], w txWork) error {
			_, err := everonce.Transact(ctx, x, keyOf("x"), w)
			return err
		},
		"InTx": func(ctx context.Context, _ *mapStore, x *everonce.TxReceiver[*mapTx], w txWork) error {
			return x.InTx(ctx, func(ctx context.Context, tx *mapTx) error { _, err := w(ctx, tx); return err })
		},
		"TransactBatch": func(ctx context.Context, _ *mapStore, x *everonce.TxReceiver[*mapTx], w txWork) error {
			res, err := everonce.TransactBatch(ctx, x, items("a", "b"), everonce.EachItem(func(ctx context.Context, tx *mapTx, i int) (int, error) {
				if i == 1 {
					return 0, nil
				}
				return w(ctx, tx)
			}))
			if err == nil {
				err = res[0].Err
			}
			return err
		},
		"StepTx": func(ctx context.Context, s *mapStore, x *everonce.TxReceiver[*mapTx], w txWork) (err error) {
			inAttempt(t, newReceiver(t, s, everonce.Refuse, nil), keyOf("x"), func(inner context.Context, a *everonce.Attempt) {
				own, cancel := context.WithCancel(inner)
				defer cancel()
				context.AfterFunc(ctx, cancel)
				_, err = everonce.StepTx(own, a, x, "charge", func(ctx context.Context, tx *mapTx) (int, error) {
					v, err := w(ctx, tx)
					<-own.Done()
					return v, err
				})
			})
			return err
		},
	}
}

// A commit does not end with the caller, whichever call sends it (rule 6).
func TestCommitsOutliveTheirCallers(t *testing.T) {
	for name, call := range transacting(t) {
		t.Run(name, func(t *testing.T) {
			s := newMapStore()
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			s.on("Commit", 0, func(ctx context.Context, call func() error) error {
				checkErr(t, ctx.Err(), nil)
				if end, ok := ctx.Deadline(); !ok || time.Until(end) < 20*time.Second {
					t.Errorf("a commit has %v, and not CompletionTimeout", time.Until(end))
				}
				return call()
			})
			checkErr(t, call(ctx, s, newTxReceiver(t, s, nil), func(ctx context.Context, tx *mapTx) (int, error) {
				defer cancel()
				return adds(ctx, tx)
			}), nil)
			checkEqual(t, "commits", s.count("Commit"), 1)
			for _, begin := range requests[driver.BeginRequest](&s.faults, "Begin") {
				checkEqual(t, "the transaction's bound", begin.Timeout, 30*time.Second)
			}
			checkEqual(t, "balance", s.row("balance"), 30)
			s.checkIdle(t)
		})
	}
}

// Nor does a rollback: one that is cut short leaves a transaction open, or costs its connection.
func TestRollbacksOutliveTheirCallers(t *testing.T) {
	for name, call := range transacting(t) {
		t.Run(name, func(t *testing.T) {
			s := newMapStore()
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			s.on("Rollback", 0, func(ctx context.Context, call func() error) error {
				checkErr(t, ctx.Err(), nil)
				return call()
			})
			checkErr(t, call(ctx, s, newTxReceiver(t, s, nil), func(ctx context.Context, tx *mapTx) (int, error) {
				defer cancel()
				_, _ = adds(ctx, tx)
				return 0, errWork
			}), errAny) // of a batch that is cut it is the caller's end
			if s.count("Rollback") == 0 {
				t.Error("nothing was rolled back")
			}
			checkEqual(t, "balance", s.row("balance"), 0)
			s.checkIdle(t)
		})
	}
}

// The transaction that asks about a lost commit is rolled back, though its question took all the time that it had.
func TestRollbackOfAQuestionThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, r, x := newStepTx(t, nil)
		s.on("Commit", 1, lose(errCommitLost))
		s.on("tx.Renew", 1, hang)
		s.on("Rollback", 0, func(ctx context.Context, call func() error) error {
			checkErr(t, ctx.Err(), nil)
			return call()
		})
		v, err := inStepTx(t, r, x, s, adds)
		checkErr(t, err, nil)
		checkEqual(t, "value", v, 30)
		checkEqual(t, "balance", s.row("balance"), 30)
		s.checkIdle(t)
	})
}
