package enginetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/driver"
)

// batchTest is a batch of deposits, whose work adds 1 to a row of the item's name.
type batchTest struct {
	*testing.T
	s    *mapStore
	x    *everonce.TxReceiver[*mapTx]
	runs map[int]int
	sets [][]int // what the work was asked for, call by call
	// fails says how an item ends; nil is well.
	fails func(i int, tx *mapTx) error
	whole bool // the work does not say which item failed
}

// batches runs a test on a store with the power and on one without.
func batches(t *testing.T, o everonce.Options, test func(b *batchTest)) {
	t.Helper()
	for _, power := range []bool{true, false} {
		t.Run(fmt.Sprintf("power %v", power), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := &batchTest{T: t, s: newMapStore(), runs: map[int]int{}}
				var store driver.TxStore[*mapTx] = b.s
				if power {
					store = batchStore{b.s}
				}
				b.x = newTxReceiver(t, store, &o)
				test(b)
			})
		})
	}
}

func items(names ...string) []everonce.BatchItem {
	all := make([]everonce.BatchItem, len(names))
	for i, n := range names {
		all[i] = everonce.BatchItem{Key: keyOf(n), Fingerprint: everonce.FingerprintOf(n)}
	}
	return all
}

func (b *batchTest) row(name string) int { return b.s.row("row of " + name) }

func (b *batchTest) transact(ctx context.Context, all []everonce.BatchItem) []everonce.BatchResult[int] {
	b.Helper()
	one := func(_ context.Context, tx *mapTx, i int) (int, error) {
		b.runs[i]++
		n, err := tx.Add("row of "+all[i].Key.ID, 1)
		if err == nil && b.fails != nil {
			err = b.fails(i, tx)
		}
		return n, err
	}
	each := everonce.EachItem(one)
	res, err := everonce.TransactBatch(ctx, b.x, all, func(ctx context.Context, tx *mapTx, todo []int) ([]int, error) {
		b.sets = append(b.sets, slices.Clone(todo))
		values, err := each(ctx, tx, todo)
		if err != nil && b.whole {
			err = errors.Join(errors.New("somewhere"), errors.Unwrap(err))
		}
		return values, err
	})
	checkErr(b, err, nil)
	b.s.checkIdle(b)
	return res
}

// outcomes writes what became of a batch.
func outcomes(res []everonce.BatchResult[int]) string {
	var s []string
	for _, r := range res {
		s = append(s, r.Outcome.String())
	}
	return fmt.Sprint(s)
}

func TestBatchIsOneTransaction(t *testing.T) {
	batches(t, everonce.Options{}, func(b *batchTest) {
		all := items("a", "b", "c")
		res := b.transact(context.Background(), all)
		checkEqual(b, "outcomes", outcomes(res), "[executed executed executed]")
		checkEqual(b, "transactions", b.s.begun, 1)
		checkEqual(b, "the work's calls", b.sets, [][]int{{0, 1, 2}})
		res = b.transact(context.Background(), append(all, items("d")...))
		checkEqual(b, "outcomes", outcomes(res), "[replayed replayed replayed executed]")
		checkEqual(b, "value", res[0].Value, 1)
		checkEqual(b, "the work's calls", b.sets[1], []int{3})
		res = b.transact(context.Background(), all)
		checkEqual(b, "outcomes", outcomes(res), "[replayed replayed replayed]")
		for _, name := range []string{"a", "b", "c", "d"} {
			checkEqual(b, "row "+name, b.row(name), 1)
		}
		checkEqual(b, "nothing", len(b.transact(context.Background(), nil)), 0)
	})
}

// Keys are claimed in the order of their hashes: two batches in different orders never wait for each other's.
func TestBatchClaimsInTheOrderOfHashes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newMapStore()
		x := newTxReceiver(t, batchStore{s}, nil)
		all := items("a", "b", "c", "d", "e", "f", "g")
		_, err := everonce.TransactBatch(context.Background(), x, all, everonce.EachItem(func(context.Context, *mapTx, int) (int, error) { return 1, nil }))
		checkErr(t, err, nil)
		claims := requests[driver.ClaimAllRequest](&s.faults, "tx.ClaimAll")[0].Claims
		done := requests[driver.CommitAllRequest](&s.faults, "Commit")[0].Completions
		if len(claims) != 7 || !slices.IsSortedFunc(claims, func(a, b driver.ClaimRequest) int { return bytes.Compare(a.ID[:], b.ID[:]) }) {
			t.Error("the claims are not in the order of their IDs")
		}
		if len(done) != 7 || !slices.IsSortedFunc(done, func(a, b driver.CompleteRequest) int { return bytes.Compare(a.ID[:], b.ID[:]) }) {
			t.Error("the records are not in the order of their IDs")
		}
	})
}

// A failing item does not fail its neighbours, whether the work says which one it is or not.
func TestBatchAFailingItemIsAlone(t *testing.T) {
	for _, whole := range []bool{false, true} {
		batches(t, everonce.Options{}, func(b *batchTest) {
			b.whole = whole
			b.fails = func(i int, tx *mapTx) error {
				switch i {
				case 2:
					return tx.Violate() // the database refuses it, and all that comes behind it
				case 5:
					return everonce.Permanent("declined", errors.New("no money"), nil)
				case 6:
					return everonce.NotDone(errWork)
				}
				return nil
			}
			all := items("a", "b", "c", "d", "e", "f", "g", "h")
			res := b.transact(context.Background(), all)
			checkEqual(b, "outcomes", outcomes(res), "[executed executed failed executed executed rejected failed executed]")
			checkErr(b, res[2].Err, errConstraint)
			checkErr(b, res[6].Err, errWork)
			checkEqual(b, "code", asPermanent(b, res[5].Err).Code, "declined")
			checkEqual(b, "attempt", res[2].Attempt, 1)
			for i, item := range all {
				want := 1
				if i == 2 || i == 5 || i == 6 {
					want = 0
				}
				checkEqual(b, "row "+item.Key.ID, b.row(item.Key.ID), want)
			}
			b.fails = nil
			res = b.transact(context.Background(), all)
			checkEqual(b, "outcomes", outcomes(res), "[replayed replayed executed replayed replayed rejected executed replayed]")
		})
	}
}

// Where the work says which item failed, that one is alone at once; where it does not, halves are tried.
func TestBatchIsCutWhereItFails(t *testing.T) {
	for whole, want := range map[bool][][]int{
		false: {{0, 1, 2, 3, 4, 5, 6, 7}, {0, 1, 2, 3, 4}, {5}, {6, 7}},
		true:  {{0, 1, 2, 3, 4, 5, 6, 7}, {0, 1, 2, 3}, {4, 5, 6, 7}, {4, 5}, {4}, {5}, {6, 7}},
	} {
		batches(t, everonce.Options{}, func(b *batchTest) {
			b.whole = whole
			b.fails = func(i int, _ *mapTx) error {
				if i == 5 {
					return errWork
				}
				return nil
			}
			b.transact(context.Background(), items("a", "b", "c", "d", "e", "f", "g", "h"))
			checkEqual(b, "the work's calls", b.sets, want)
		})
	}
}

// Where each item fails, the work runs about twice for each, and not once for each pair.
func TestBatchOfFailuresIsLinear(t *testing.T) {
	batches(t, everonce.Options{}, func(b *batchTest) {
		b.fails = func(int, *mapTx) error { return errWork }
		names := make([]string, 40)
		for i := range names {
			names[i] = fmt.Sprint(i)
		}
		res := b.transact(context.Background(), items(names...))
		runs := 0
		for i, r := range res {
			checkErr(b, r.Err, errWork)
			runs += b.runs[i]
		}
		if runs > 3*len(names) {
			b.Errorf("the work of %d items ran %d times", len(names), runs)
		}
	})
}

// A key that is in the batch twice takes what the first came to.
func TestBatchTakesAKeyOnce(t *testing.T) {
	batches(t, everonce.Options{}, func(b *batchTest) {
		b.fails = func(i int, _ *mapTx) error {
			switch i {
			case 1:
				return everonce.Permanent("declined", nil, nil)
			case 2:
				return errWork
			}
			return nil
		}
		all := items("a", "no", "fails", "a", "no", "fails", "a", "fails")
		all[6].Fingerprint = everonce.FingerprintOf("another a")
		all[7].Fingerprint = everonce.FingerprintOf("another")
		res := b.transact(context.Background(), all)
		checkEqual(b, "outcomes", outcomes(res), "[executed rejected failed replayed rejected failed mismatch in_progress]")
		checkEqual(b, "value", res[3].Value, 1)
		checkEqual(b, "attempt", res[3].Attempt, 0)
		checkErr(b, res[5].Err, errWork)
		checkErr(b, res[6].Err, everonce.ErrMismatch)
		checkEqual(b, "row a", b.row("a"), 1)
		res = b.transact(context.Background(), items("a", "a"))
		checkEqual(b, "outcomes", outcomes(res), "[replayed replayed]")
	})
}

// A fingerprint that the first of a key cannot be compared with is compared with the record's (rule 8).
func TestBatchComparesWithTheRecord(t *testing.T) {
	batches(t, everonce.Options{}, func(b *batchTest) {
		b.transact(context.Background(), items("a"))
		all := items("a", "a", "a", "a", "new", "new", "new")
		all[0].Fingerprint, all[4].Fingerprint = everonce.Fingerprint{}, everonce.Fingerprint{}
		all[2].Fingerprint = everonce.FingerprintOf("another a")
		all[3].Fingerprint = everonce.FingerprintJSON("a")
		res := b.transact(context.Background(), all)
		checkEqual(b, "outcomes", outcomes(res), "[replayed replayed mismatch replayed executed replayed replayed]")
		checkEqual(b, "row a", b.row("a"), 1)
		checkEqual(b, "row new", b.row("new"), 1)
	})
}

// An item that another attempt holds leaves the batch as in progress, and an invalid one as invalid; the rest runs.
func TestBatchAnswersEachItem(t *testing.T) {
	batches(t, everonce.Options{Wait: time.Hour}, func(b *batchTest) {
		b.transact(context.Background(), items("done"))
		h, _, err := b.s.Begin(context.Background(), driver.BeginRequest{Timeout: time.Hour, Claim: &driver.ClaimRequest{
			ID: keyOf("busy").RecordID(), Scope: keyOf("busy").Scope, Name: "busy", Nonce: driver.NewNonce(),
		}})
		checkErr(b, err, nil)
		all := items("new", "busy", "done", "", "done", "new 2")
		all[4].Fingerprint = everonce.FingerprintOf("another")
		all[2].Key = keyOf("other")
		res, err := everonce.TransactBatch(context.Background(), b.x, all, everonce.EachItem(func(_ context.Context, tx *mapTx, i int) (int, error) { return i, nil }))
		checkErr(b, err, nil)
		checkEqual(b, "outcomes", outcomes(res), "[executed in_progress executed invalid mismatch executed]")
		checkEqual(b, "value", res[5].Value, 5)
		checkErr(b, res[1].Err, everonce.ErrInProgress)
		checkErr(b, res[3].Err, everonce.ErrInvalidKey)
		checkErr(b, h.Rollback(context.Background()), nil)
	})
}

func TestBatchRefusesWrongCalls(t *testing.T) {
	x := newTxReceiver(t, newMapStore(), nil)
	work := everonce.EachItem(func(context.Context, *mapTx, int) (int, error) { return 0, nil })
	for name, call := range map[string]func() ([]everonce.BatchResult[int], error){
		"no receiver": func() ([]everonce.BatchResult[int], error) {
			return everonce.TransactBatch(t.Context(), (*everonce.TxReceiver[*mapTx])(nil), nil, work)
		},
		"no work": func() ([]everonce.BatchResult[int], error) {
			return everonce.TransactBatch(t.Context(), x, nil, everonce.EachItem[int, *mapTx](nil))
		},
		"too many": func() ([]everonce.BatchResult[int], error) {
			return everonce.TransactBatch(t.Context(), x, make([]everonce.BatchItem, driver.MaxBatch+1), work)
		},
		"one fingerprint for all": func() ([]everonce.BatchResult[int], error) {
			return everonce.TransactBatch(t.Context(), x, nil, work, everonce.FingerprintOf(1))
		},
		"waiting": func() ([]everonce.BatchResult[int], error) {
			return everonce.TransactBatch(t.Context(), x, nil, work, everonce.WithWait(time.Second))
		},
		"a summary of another type": func() ([]everonce.BatchResult[int], error) {
			return everonce.TransactBatch(t.Context(), x, nil, work, everonce.WithSummary(func(string) []byte { return nil }))
		},
	} {
		if res, err := call(); !errors.Is(err, everonce.ErrInvalidArgument) || res != nil {
			t.Errorf("%s: %v, %v", name, res, err)
		}
	}
	res, err := everonce.TransactBatch(t.Context(), x, items("a", "b"), func(context.Context, *mapTx, []int) ([]int, error) { return []int{}, nil })
	checkErr(t, err, nil)
	for _, r := range res {
		checkErr(t, r.Err, everonce.ErrInvalidArgument)
	}
}

// A batch inside a transaction on the same store is refused (rule 19), and so is a call from inside its work.
func TestBatchAndPlaces(t *testing.T) {
	batches(t, everonce.Options{}, func(b *batchTest) {
		res, err := everonce.TransactBatch(context.Background(), b.x, items("a", "b"), everonce.EachItem(func(ctx context.Context, tx *mapTx, i int) (int, error) {
			_, err := everonce.Transact(ctx, b.x, keyOf("inner"), adds)
			checkErr(b, err, everonce.ErrInTransaction)
			inner, err := everonce.TransactBatch(ctx, b.x, items("c"), everonce.EachItem(func(context.Context, *mapTx, int) (int, error) { return 0, nil }))
			checkErr(b, err, nil)
			checkErr(b, inner[0].Err, everonce.ErrInTransaction)
			if _, ok := everonce.AttemptFrom(ctx); ok {
				b.Error("there is an attempt in a batch")
			}
			joined, err := everonce.DoTx(ctx, tx, b.x, keyOf(fmt.Sprint("inner", i)), func(context.Context) (int, error) { return adds(ctx, tx) })
			checkOutcome(b, joined, err, everonce.Executed, nil)
			return 1, nil
		}))
		checkErr(b, err, nil)
		checkEqual(b, "outcomes", outcomes(res), "[executed executed]")
		checkEqual(b, "balance", b.s.row("balance"), 60)
	})
}

func TestBatchIsObservedPerItem(t *testing.T) {
	rec := &recorder{}
	batches(t, everonce.Options{Observer: rec}, func(b *batchTest) {
		b.fails = func(i int, _ *mapTx) error {
			if i == 1 {
				return errWork
			}
			return nil
		}
		b.transact(context.Background(), items("a", "b", "", "a"))
		events := rec.take(b)
		var got []everonce.Outcome
		for _, ev := range events {
			got = append(got, ev.Outcome)
			checkEqual(b, "Kind", ev.Kind, "transact")
		}
		checkEqual(b, "outcomes", got, []everonce.Outcome{everonce.Executed, everonce.Failed, everonce.Replayed})
		checkEqual(b, "Attempt", events[0].Attempt, 1)
		func() {
			defer func() { _ = recover() }()
			b.fails = func(int, *mapTx) error { panic("no") }
			b.transact(context.Background(), items("c", "d"))
		}()
		for _, ev := range rec.take(b) {
			checkEqual(b, "outcome", ev.Outcome, everonce.Failed)
		}
		b.s.checkIdle(b)
	})
}

// Work that names no item is not called where there is nothing to be done, and may change the list that it is given.
func TestBatchWorkAndItsList(t *testing.T) {
	batches(t, everonce.Options{}, func(b *batchTest) {
		calls := 0
		for _, want := range []string{"[executed executed executed]", "[replayed replayed replayed]"} {
			res, err := everonce.TransactBatch(context.Background(), b.x, items("a", "b", "c"), func(_ context.Context, _ *mapTx, todo []int) ([]int, error) {
				calls++
				values := slices.Clone(todo)
				slices.Reverse(todo)
				return values, nil
			})
			checkErr(b, err, nil)
			checkEqual(b, "outcomes", outcomes(res), want)
			for i := range res {
				checkEqual(b, "value", res[i].Value, i)
			}
		}
		checkEqual(b, "calls of the work", calls, 1)
	})
}

// A fingerprint that could not be computed is no fingerprint, under which any request would be the same.
func TestBatchRefusesABadFingerprint(t *testing.T) {
	batches(t, everonce.Options{}, func(b *batchTest) {
		all := items("a", "b", "c")
		all[1].Fingerprint = everonce.FingerprintOf(make(chan int))
		res := b.transact(context.Background(), all)
		checkEqual(b, "outcomes", outcomes(res), "[executed invalid executed]")
		checkErr(b, res[1].Err, everonce.ErrInvalidArgument)
		checkEqual(b, "row b", b.row("b"), 0)
	})
}

// Without the power the records are single statements: where one is refused, nothing is committed without its record.
func TestBatchWhoseRecordFails(t *testing.T) {
	s := newMapStore()
	b := &batchTest{T: t, s: s, x: newTxReceiver(t, s, nil), runs: map[int]int{}}
	s.on("tx.Complete", 1, refuse(errNet))
	checkEqual(t, "outcomes", outcomes(b.transact(context.Background(), items("a", "b"))), "[executed executed]")
	for _, name := range []string{"a", "b"} {
		checkEqual(t, "row "+name, b.row(name), 1)
		checkEqual(t, "state", s.record(keyOf(name)).State, driver.StateCompleted)
	}
}

// With another secret the keys would be others, and everything done again.
func TestBatchOfAnotherSecret(t *testing.T) {
	s := newMapStore()
	checkErr(t, newTxReceiver(t, s, &everonce.Options{IdentitySecret: []byte("the first secret")}).Ready(context.Background()), nil)
	x := newTxReceiver(t, s, &everonce.Options{IdentitySecret: []byte("another one of it")})
	res, err := everonce.TransactBatch(context.Background(), x, items("a", "b"), everonce.EachItem(func(context.Context, *mapTx, int) (int, error) {
		t.Error("the work ran")
		return 0, nil
	}))
	checkErr(t, err, driver.ErrIdentity)
	checkEqual(t, "results", len(res), 0)
}

// An item that is in the batch twice gets a separate value each time: changing one does not change the other.
func TestBatchItemsHaveSeparateValues(t *testing.T) {
	batches(t, everonce.Options{}, func(b *batchTest) {
		for _, want := range []string{"[executed replayed]", "[replayed replayed]"} {
			res, err := everonce.TransactBatch(context.Background(), b.x, items("a", "a"), everonce.EachItem(func(context.Context, *mapTx, int) ([]byte, error) {
				return []byte("value"), nil
			}))
			checkErr(b, err, nil)
			checkEqual(b, "outcomes", fmt.Sprintf("[%v %v]", res[0].Outcome, res[1].Outcome), want)
			res[0].Value[0] = '?'
			checkEqual(b, "value", string(res[1].Value), "value")
		}
	})
}
