package enginetest

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/driver"
)

// A lost answer to a batch's commit is resolved through the claims (rule 16), for all of it.
func TestBatchWhoseCommitWasLost(t *testing.T) {
	for name, c := range lostCommits {
		t.Run(name, func(t *testing.T) {
			batches(t, everonce.Options{}, func(b *batchTest) {
				b.s.on("Commit", 1, c.commit(b.s))
				res := b.transact(context.Background(), items("a", "b", "c"))
				checkEqual(b, "outcomes", outcomes(res), "[executed executed executed]")
				for i, name := range []string{"a", "b", "c"} {
					checkEqual(b, "value", res[i].Value, 1)
					checkEqual(b, "attempt", res[i].Attempt, 1)
					checkEqual(b, "runs", b.runs[i], c.runs)
					checkEqual(b, "row "+name, b.row(name), 1)
				}
			})
		})
	}
}

// A lost commit is looked up even if the caller has gone.
func TestBatchWhoseCommitWasLostWithItsCaller(t *testing.T) {
	batches(t, everonce.Options{}, func(b *batchTest) {
		ctx, cancel := context.WithCancel(context.Background())
		b.s.on("Commit", 1, func(_ context.Context, call func() error) error {
			defer cancel()
			return errors.Join(errCommitLost, call())
		})
		checkEqual(b, "outcomes", outcomes(b.transact(ctx, items("a", "b"))), "[executed executed]")
		checkEqual(b, "runs", fmt.Sprint(b.runs), "map[0:1 1:1]")
	})
}

// Of a commit that was lost, and was not made, another may have done a part since: that is the other's, and replayed.
func TestBatchWhoseCommitWasLostAndOvertaken(t *testing.T) {
	batches(t, everonce.Options{}, func(b *batchTest) {
		b.s.on("Commit", 1, func(context.Context, func() error) error {
			b.s.abort()
			res, err := everonce.Transact(context.Background(), b.x, keyOf("b"), func(context.Context, *mapTx) (int, error) { return 7, nil })
			checkOutcome(b, res, err, everonce.Executed, nil)
			return errCommitLost
		})
		res := b.transact(context.Background(), items("a", "b", "c"))
		checkEqual(b, "outcomes", outcomes(res), "[executed replayed executed]")
		checkEqual(b, "the other's value", res[1].Value, 7)
		checkEqual(b, "row b", b.row("b"), 0)
	})
}

func TestBatchWhoseCommitWasLostWithTheStore(t *testing.T) {
	batches(t, everonce.Options{}, func(b *batchTest) {
		b.s.on("Commit", 1, func(_ context.Context, call func() error) error {
			err := call()
			b.s.on("Begin", 0, refuse(errNet))
			return errors.Join(errCommitLost, err)
		})
		res := b.transact(context.Background(), items("a", "b"))
		for _, r := range res {
			checkOutcome(b, r.Result, r.Err, everonce.Unknown, everonce.ErrOutcomeUnknown)
			checkErr(b, r.Err, errCommitLost)
			checkErr(b, r.Err, errNet)
			checkEqual(b, "attempt", r.Attempt, 1)
			checkEqual(b, "RetryAfter", asError(b, r.Err).RetryAfter, time.Second)
		}
		b.s.heal()
		checkEqual(b, "to call again finds out", outcomes(b.transact(context.Background(), items("a", "b"))), "[replayed replayed]")
	})
}

// After a deadlock the whole transaction runs again; if it never succeeds, the item that causes it is found.
func TestBatchAfterADeadlock(t *testing.T) {
	batches(t, everonce.Options{}, func(b *batchTest) {
		deadlocks := 1
		b.fails = func(i int, tx *mapTx) error {
			if i != 1 || deadlocks == 0 {
				return nil
			}
			deadlocks--
			return tx.Deadlock()
		}
		all := items("a", "b", "c", "d")
		checkEqual(b, "outcomes", outcomes(b.transact(context.Background(), all)), "[executed executed executed executed]")
		checkEqual(b, "the work's calls", b.sets, [][]int{{0, 1, 2, 3}, {0, 1, 2, 3}})
		deadlocks, b.sets = -1, nil
		all = items("e", "f", "g", "h")
		res := b.transact(context.Background(), all)
		whole := 0
		for _, set := range b.sets {
			if len(set) == len(all) {
				whole++
			}
		}
		checkEqual(b, "runs of the whole", whole, 1+3)
		checkEqual(b, "outcomes", outcomes(res), "[executed failed executed executed]")
		checkErr(b, res[1].Err, errDeadlock)
		for i, item := range all {
			if i != 1 {
				checkEqual(b, "row", b.row(item.Key.ID), 1)
			}
		}
	})
}

// A conflict that the commit finds is asked about by new claims, and a refusal by size concerns the item that is
// too large alone.
func TestBatchWhoseCommitIsRefused(t *testing.T) {
	batches(t, everonce.Options{}, func(b *batchTest) {
		b.s.on("Commit", 1, func(ctx context.Context, _ func() error) error {
			b.s.abort()
			res, err := everonce.Transact(context.Background(), b.x, keyOf("b"), func(context.Context, *mapTx) (int, error) { return 7, nil })
			checkOutcome(b, res, err, everonce.Executed, nil)
			return driver.ErrConflict
		})
		res := b.transact(context.Background(), items("a", "b", "c"))
		checkEqual(b, "outcomes", outcomes(res), "[executed replayed executed]")
		checkEqual(b, "value", res[1].Value, 7)
		checkEqual(b, "row b", b.row("b"), 0)

		tooLarge := fmt.Errorf("row size: %w", driver.ErrTooLarge)
		b.s.on("Commit", 0, func(_ context.Context, call func() error) error {
			b.s.mu.Lock()
			large := false
			for _, tx := range b.s.open {
				for id, rec := range tx.written.records {
					large = large || id == keyOf("large").RecordID() && rec.Result.Kind == driver.ResultValue
				}
			}
			b.s.mu.Unlock()
			if large {
				return tooLarge
			}
			return call()
		})
		res = b.transact(context.Background(), items("d", "large", "e", "large"))
		checkEqual(b, "outcomes", outcomes(res), "[executed executed executed elided]")
		checkEqual(b, "row large", b.row("large"), 1)
		checkErr(b, res[3].Err, everonce.ErrResultElided)
	})
}

// An item that makes the commit fail, by a deferred constraint, does not fail its neighbours.
func TestBatchIsCutWhereItsCommitFails(t *testing.T) {
	batches(t, everonce.Options{}, func(b *batchTest) {
		b.s.on("Commit", 0, func(_ context.Context, call func() error) error {
			b.s.mu.Lock()
			violated := false
			for _, tx := range b.s.open {
				_, written := tx.written.rows["row of poison"]
				violated = violated || written
			}
			b.s.mu.Unlock()
			if violated {
				return errConstraint
			}
			return call()
		})
		res := b.transact(context.Background(), items("a", "b", "poison", "c", "d"))
		checkEqual(b, "outcomes", outcomes(res), "[executed executed failed executed executed]")
		checkErr(b, res[2].Err, errConstraint)
		checkEqual(b, "attempt", res[2].Attempt, 1)
	})
}

func TestBatchWhenTheStoreFails(t *testing.T) {
	batches(t, everonce.Options{}, func(b *batchTest) {
		for _, methods := range [][]string{{"Begin"}, {"tx.Claim", "tx.ClaimAll"}} {
			b.s.heal()
			for _, method := range methods {
				b.s.on(method, 0, refuse(errNet))
			}
			for _, r := range b.transact(context.Background(), items("a", "b")) {
				checkOutcome(b, r.Result, r.Err, everonce.StoreFailed, everonce.ErrStore)
			}
		}
		b.s.heal()
		b.s.on("Commit", 0, refuse(errNet))
		for _, r := range b.transact(context.Background(), items("a", "b")) {
			checkOutcome(b, r.Result, r.Err, everonce.Failed, errNet)
		}
		b.s.heal()
		checkEqual(b, "then", outcomes(b.transact(context.Background(), items("a", "b"))), "[executed executed]")
	})
}

// Where the caller ends before the work nothing runs; where it ends meanwhile, what was done is committed (rule 6).
func TestBatchWhoseCallerEnds(t *testing.T) {
	batches(t, everonce.Options{}, func(b *batchTest) {
		ctx, cancel := context.WithCancel(context.Background())
		b.fails = func(int, *mapTx) error { cancel(); return nil }
		checkEqual(b, "outcomes", outcomes(b.transact(ctx, items("a", "b"))), "[executed executed]")
		for _, r := range b.transact(ctx, items("c", "d")) {
			checkOutcome(b, r.Result, r.Err, everonce.Failed, context.Canceled)
			checkEqual(b, "attempt", r.Attempt, 0)
		}
		ctx, cancel = context.WithCancel(context.Background())
		b.fails = func(int, *mapTx) error { cancel(); return ctx.Err() }
		for _, r := range b.transact(ctx, items("c", "d")) {
			checkOutcome(b, r.Result, r.Err, everonce.Failed, context.Canceled)
		}
		checkEqual(b, "row c", b.row("c"), 0)
	})
}

func TestBatchWhoseCallerEndsWithTheClaims(t *testing.T) {
	batches(t, everonce.Options{}, func(b *batchTest) {
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		for _, method := range []string{"tx.Claim", "tx.ClaimAll"} {
			b.s.on(method, 1, func(_ context.Context, call func() error) error { cancel(); return call() })
		}
		for _, r := range b.transact(ctx, items("a", "b")) {
			checkOutcome(b, r.Result, r.Err, everonce.Failed, context.Canceled)
			checkEqual(b, "attempt", r.Attempt, 0)
		}
		checkEqual(b, "the work's calls", len(b.sets), 0)
	})
}

// A batch that takes longer than a transaction may is run in parts.
func TestBatchThatTakesTooLong(t *testing.T) {
	batches(t, everonce.Options{TxTimeout: time.Second}, func(b *batchTest) {
		b.fails = func(int, *mapTx) error { time.Sleep(300 * time.Millisecond); return nil }
		res := b.transact(context.Background(), items("a", "b", "c", "d", "e"))
		checkEqual(b, "outcomes", outcomes(res), "[executed executed executed executed executed]")
	})
}
