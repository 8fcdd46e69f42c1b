package enginetest

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/driver"
)

// A lost commit that turns out not to have been made does not affect the runs after it.
func TestBatchForgetsALostCommitThatWasNotMade(t *testing.T) {
	batches(t, everonce.Options{}, func(b *batchTest) {
		b.s.on("Commit", 0, refuse(errDeadlock))
		b.s.on("Commit", 1, func(context.Context, func() error) error { b.s.abort(); return errCommitLost })
		for _, r := range b.transact(context.Background(), items("a", "b")) {
			checkOutcome(b, r.Result, r.Err, everonce.Failed, everonce.ErrStore)
			checkErr(b, r.Err, errDeadlock)
			checkEqual(b, "it is unknown", errors.Is(r.Err, everonce.ErrOutcomeUnknown), false)
		}
	})
}

// An item that is alone is as one of many: it does not wait, its work finds no attempt, and its error is the work's
// own.
func TestBatchOfOne(t *testing.T) {
	batches(t, everonce.Options{Wait: time.Hour, Optimistic: true}, func(b *batchTest) {
		diedIn(b, b.s, keyOf("busy"), 2*time.Hour)
		start := time.Now()
		checkEqual(b, "outcomes", outcomes(b.transact(context.Background(), items("busy"))), "[in_progress]")
		checkEqual(b, "it waited for", time.Since(start), time.Duration(0))
		res, err := everonce.TransactBatch(context.Background(), b.x, items("a"), everonce.EachItem(func(ctx context.Context, _ *mapTx, _ int) (int, error) {
			if _, ok := everonce.AttemptFrom(ctx); ok {
				b.Error("there is an attempt in a batch of one")
			}
			return 0, errWork
		}))
		checkErr(b, err, nil)
		if res[0].Err != errWork { //nolint:errorlint // it must be the work's own
			b.Errorf("%T %v", res[0].Err, res[0].Err)
		}
	})
}

// A commit that ends in a deadlock is made again for all, as often as TxRetries allow; and the number of the
// attempt is the record's.
func TestBatchWhoseCommitDeadlocks(t *testing.T) {
	rec := &recorder{}
	batches(t, everonce.Options{Observer: rec}, func(b *batchTest) {
		inAttempt(b, newReceiver(b, b.s, everonce.Refuse, nil), keyOf("b"), func(context.Context, *everonce.Attempt) {})
		b.s.on("Commit", 1, refuse(errDeadlock))
		res := b.transact(context.Background(), items("a", "b"))
		checkEqual(b, "outcomes", outcomes(res), "[executed executed]")
		checkEqual(b, "the work's calls", b.sets, [][]int{{0, 1}, {0, 1}})
		checkEqual(b, "attempt", res[1].Attempt, 2)
		events := rec.take(b)
		checkEqual(b, "Retries", events[0].Retries, 1)
		checkEqual(b, "Observation.Attempt", events[1].Attempt, 2)
	})
	batches(t, everonce.Options{TxRetries: -1, MaxResult: 1, Observer: rec}, func(b *batchTest) {
		b.s.on("Commit", 1, refuse(errDeadlock))
		checkEqual(b, "outcomes", outcomes(b.transact(context.Background(), items("a", "b", "c"))), "[executed executed executed]")
		checkEqual(b, "the work's calls", b.sets[1], []int{0})
		rec.take(b)
		res, err := everonce.TransactBatch(context.Background(), b.x, items("d", "e"), everonce.EachItem(func(context.Context, *mapTx, int) (string, error) { return "too long", nil }))
		checkErr(b, err, nil)
		checkErr(b, errors.Join(res[0].Err, res[1].Err), nil)
		for _, ev := range rec.take(b) {
			checkEqual(b, "Elided", ev.Elided, "size")
		}
	})
}

// A caller whose context ends between two runs gets its cause.
func TestBatchWhoseCallerEndsBetweenTwoRuns(t *testing.T) {
	batches(t, everonce.Options{}, func(b *batchTest) {
		ctx, cancel := context.WithCancel(context.Background())
		b.fails = func(_ int, tx *mapTx) error { cancel(); return tx.Deadlock() }
		for _, r := range b.transact(ctx, items("a", "b")) {
			checkOutcome(b, r.Result, r.Err, everonce.Failed, context.Canceled)
			checkErr(b, r.Err, errDeadlock)
		}
	})
}

// A store that does not answer, or cannot read one of the records, costs the others no more than their time.
func TestBatchAtAStoreThatHangs(t *testing.T) {
	batches(t, everonce.Options{}, func(b *batchTest) {
		b.s.on("Begin", 0, hang)
		for _, r := range b.transact(context.Background(), items("a", "b")) {
			checkOutcome(b, r.Result, r.Err, everonce.StoreFailed, everonce.ErrStore)
		}
		b.s.heal()
		b.s.on("tx.ClaimAll", 1, refuse(driver.ErrCorruptRecord))
		b.s.on("tx.Claim", 1, func(_ context.Context, call func() error) error {
			if b.s.count("tx.ClaimAll") > 0 { // it is one of the items alone
				return call()
			}
			return driver.ErrCorruptRecord
		})
		checkEqual(b, "outcomes", outcomes(b.transact(context.Background(), items("a", "b"))), "[executed executed]")
	})
}

// A record that cannot be read, or that a newer version has written, while versions change, is one item's answer,
// and not its neighbours'.
func TestBatchWithARecordThatIsRefused(t *testing.T) {
	for _, bad := range []error{driver.ErrCorruptRecord, driver.ErrNewerRecord} {
		batches(t, everonce.Options{}, func(b *batchTest) {
			refused := keyOf("c").RecordID()
			b.s.on("tx.Claim", 0, func(_ context.Context, call func() error) error {
				if reqs := requests[driver.ClaimRequest](&b.s.faults, "tx.Claim"); reqs[len(reqs)-1].ID == refused {
					return bad
				}
				return call()
			})
			b.s.on("tx.ClaimAll", 0, func(_ context.Context, call func() error) error {
				reqs := requests[driver.ClaimAllRequest](&b.s.faults, "tx.ClaimAll")
				if slices.ContainsFunc(reqs[len(reqs)-1].Claims, func(req driver.ClaimRequest) bool { return req.ID == refused }) {
					return bad
				}
				return call()
			})
			res := b.transact(context.Background(), items("a", "b", "c", "d"))
			checkEqual(b, "outcomes", outcomes(res), "[executed executed store_failed executed]")
			checkErr(b, res[2].Err, bad)
			checkErr(b, res[2].Err, everonce.ErrStore)
			for _, name := range []string{"a", "b", "d"} {
				checkEqual(b, "row "+name, b.row(name), 1)
			}
			checkEqual(b, "row c", b.row("c"), 0)
		})
	}
}

// Waiters of a key that a batch has are woken by its commit.
func TestBatchWakesWaiters(t *testing.T) {
	batches(t, everonce.Options{}, func(b *batchTest) {
		done := make(chan struct{})
		b.fails = func(i int, _ *mapTx) error {
			if i == 1 {
				return nil
			}
			go func() {
				defer close(done)
				start := time.Now()
				res, err := everonce.Transact(context.Background(), b.x, keyOf("a"), txNever(b), everonce.WithWait(time.Hour))
				checkOutcome(b, res, err, everonce.Replayed, nil)
				checkEqual(b, "it waited for", time.Since(start), 10*time.Second)
			}()
			time.Sleep(10 * time.Second)
			return nil
		}
		checkEqual(b, "outcomes", outcomes(b.transact(context.Background(), items("a", "b"))), "[executed executed]")
		<-done
	})
}

// As many as there may be are taken, under a nonce that no other batch has.
func TestBatchOfTheMost(t *testing.T) {
	s := newMapStore()
	x := newTxReceiver(t, batchStore{s}, nil)
	one := everonce.EachItem(func(context.Context, *mapTx, int) (int, error) { return 1, nil })
	res, err := everonce.TransactBatch(context.Background(), x, make([]everonce.BatchItem, driver.MaxBatch), one)
	checkErr(t, err, nil)
	checkEqual(t, "results", len(res), driver.MaxBatch)
	for _, name := range []string{"a", "b"} {
		_, err := everonce.TransactBatch(context.Background(), x, items(name+"1", name+"2"), one)
		checkErr(t, err, nil)
	}
	if a, b := s.record(keyOf("a1")).Nonce, s.record(keyOf("b1")).Nonce; a == b || a == (driver.Nonce{}) {
		t.Errorf("nonces %v and %v", a, b)
	}
}

// A second item with another fingerprint is a mismatch also where the result is gone, or was never kept.
func TestBatchSecondsOfAnExpiredResult(t *testing.T) {
	batches(t, everonce.Options{MaxResult: 1}, func(b *batchTest) {
		do := func() string {
			all := items("a", "a")
			all[1].Fingerprint = everonce.FingerprintOf("another")
			res, err := everonce.TransactBatch(context.Background(), b.x, all, everonce.EachItem(func(context.Context, *mapTx, int) (string, error) { return "too long", nil }))
			checkErr(b, err, nil)
			return res[0].Outcome.String() + " " + res[1].Outcome.String()
		}
		checkEqual(b, "new", do(), "executed mismatch")
		checkEqual(b, "elided", do(), "elided mismatch")
		time.Sleep(everonce.ForWeb().Retention)
		checkEqual(b, "expired", do(), "expired mismatch")
	})
}

// A second item with a fingerprint that the first cannot be compared with is compared with the record's, also where
// that was refused.
func TestBatchSecondsOfARefusal(t *testing.T) {
	batches(t, everonce.Options{}, func(b *batchTest) {
		b.fails = func(int, *mapTx) error { return everonce.Permanent("declined", nil, nil) }
		b.transact(context.Background(), items("a"))
		all := items("a", "a")
		all[0].Fingerprint, all[1].Fingerprint = everonce.Fingerprint{}, everonce.FingerprintOf("another")
		checkEqual(b, "outcomes", outcomes(b.transact(context.Background(), all)), "[rejected mismatch]")
	})
}

// Work that says how an item ended is believed: its deadlock is not run again for all.
func TestBatchOfAMarkedDeadlock(t *testing.T) {
	batches(t, everonce.Options{}, func(b *batchTest) {
		b.fails = func(i int, tx *mapTx) error {
			if i == 1 {
				return everonce.NotDone(tx.Deadlock())
			}
			return nil
		}
		checkEqual(b, "outcomes", outcomes(b.transact(context.Background(), items("a", "b"))), "[executed failed]")
		checkEqual(b, "the work's calls", b.sets, [][]int{{0, 1}, {0}, {1}})
	})
}
