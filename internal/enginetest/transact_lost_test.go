package enginetest

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/driver"
)

// lostCommits are the ways in which the answer to a commit is lost, and how often the work then runs.
var lostCommits = map[string]struct {
	commit func(s *mapStore) behaviour
	runs   int
}{
	"committed": {func(*mapStore) behaviour { return lose(errCommitLost) }, 1},
	"not committed": {func(s *mapStore) behaviour {
		return func(context.Context, func() error) error { s.abort(); return errCommitLost }
	}, 2},
	"still in progress, then committed": {func(*mapStore) behaviour {
		return func(_ context.Context, call func() error) error {
			time.AfterFunc(300*time.Millisecond, func() { _ = call() })
			return errCommitLost
		}
	}, 1},
	"still in progress, then rolled back": {func(s *mapStore) behaviour {
		return func(context.Context, func() error) error {
			time.AfterFunc(300*time.Millisecond, s.abort)
			return errCommitLost
		}
	}, 2},
}

// A lost answer to a commit is resolved through the claim (rule 16).
func TestTransactWhoseCommitWasLost(t *testing.T) {
	for name, c := range lostCommits {
		t.Run(name, func(t *testing.T) {
			ways(t, func(t *testing.T, o everonce.Options) {
				for _, callerGone := range []bool{false, true} {
					s := newMapStore()
					x := newTxReceiver(t, s, &o)
					s.on("Commit", 1, c.commit(s))
					ctx, cancel := context.WithCancel(context.Background())
					runs := 0
					res, err := everonce.Transact(ctx, x, keyOf("x"), func(ctx context.Context, tx *mapTx) (int, error) {
						runs++
						if callerGone {
							cancel()
						}
						return adds(ctx, tx)
					})
					cancel()
					if callerGone && c.runs == 2 { // the look-up finds no commit, and no caller waits for another run
						checkOutcome(t, res, err, everonce.Failed, context.Canceled)
						checkEqual(t, "runs", runs, 1)
						checkEqual(t, "balance", s.row("balance"), 0)
					} else {
						checkOutcome(t, res, err, everonce.Executed, nil)
						checkEqual(t, "value", res.Value, 30)
						checkEqual(t, "Attempt", res.Attempt, 1)
						checkEqual(t, "runs", runs, c.runs)
						checkEqual(t, "balance", s.row("balance"), 30)
					}
					s.checkIdle(t)
				}
			})
		})
	}
}

func TestTransactWhoseCommitWasLostWithTheStore(t *testing.T) {
	ways(t, func(t *testing.T, o everonce.Options) {
		s := newMapStore()
		o.RetryAfter = 7 * time.Second
		x := newTxReceiver(t, s, &o)
		s.on("Commit", 1, func(_ context.Context, call func() error) error {
			err := call()
			s.on("Begin", 0, refuse(errNet))
			s.on("Get", 0, refuse(errNet))
			return errors.Join(errCommitLost, err)
		})
		_, err := transact(t, x, s, keyOf("x"), adds, everonce.Unknown, everonce.ErrOutcomeUnknown)
		checkErr(t, err, errCommitLost)
		checkErr(t, err, errNet)
		checkEqual(t, "RetryAfter", asError(t, err).RetryAfter, o.RetryAfter)
		s.heal()
		res, _ := transact(t, x, s, keyOf("x"), txNever(t), everonce.Replayed, nil) // to call again finds out
		checkEqual(t, "value", res.Value, 30)
	})
}

func TestTransactWhoseFailuresCommitWasLost(t *testing.T) {
	s := newMapStore()
	x := newTxReceiver(t, s, nil)
	s.on("Commit", 1, lose(errCommitLost))
	_, err := transact(t, x, s, keyOf("x"), addsThen(func(*mapTx) error { return everonce.Permanent("declined", nil, nil) }), everonce.Rejected, errAny)
	checkEqual(t, "code", asPermanent(t, err).Code, "declined")
}

// Of two optimistic duplicates at once both may work, and one is rolled back and replays the other.
func TestOptimisticConflict(t *testing.T) {
	for _, retries := range []int{0, -1} { // it is no failure, so it needs no retries
		synctest.Test(t, func(t *testing.T) {
			s := newMapStore()
			x := newTxReceiver(t, s, &everonce.Options{TxRetries: retries})
			runs := 0
			res, err := everonce.Transact(context.Background(), x, keyOf("x"), func(ctx context.Context, tx *mapTx) (int, error) {
				runs++
				if runs == 1 {
					other, err := everonce.Transact(context.Background(), x, keyOf("x"), func(ctx context.Context, tx *mapTx) (int, error) {
						runs++
						return tx.Add("balance", 5)
					}, everonce.Optimistic())
					checkOutcome(t, other, err, everonce.Executed, nil)
				}
				return tx.Add("other", 30)
			}, everonce.Optimistic())
			checkOutcome(t, res, err, everonce.Replayed, nil)
			checkEqual(t, "the winner's value", res.Value, 5)
			checkEqual(t, "runs", runs, 2)
			checkEqual(t, "the loser's write", s.row("other"), 0)
			s.checkIdle(t)
		})
	}
}

func TestTransactWhenTheStoreFails(t *testing.T) {
	ways(t, func(t *testing.T, o everonce.Options) {
		for _, do := range []behaviour{refuse(errNet), hang, refuse(fmt.Errorf("sql: %w", everonce.ErrSchema))} {
			s := newMapStore()
			x := newTxReceiver(t, s, &o)
			s.on("Begin", 0, do)
			s.on("Get", 0, do)
			transact(t, x, s, keyOf("x"), txNever(t), everonce.StoreFailed, everonce.ErrStore)
			if n := s.count("Begin"); n > 1 {
				t.Errorf("%d begins", n)
			}
			s.heal()
			s.on("Commit", 0, refuse(errNet))
			transact(t, x, s, keyOf("x"), adds, everonce.Failed, errNet)
			checkEqual(t, "balance", s.row("balance"), 0)
		}
	})
}

// Where a database finds out at the end that another had the key, the claim tells what became of it.
func TestTransactWhoseCompletionConflicts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newMapStore()
		x := newTxReceiver(t, s, nil)
		s.on("Commit", 1, refuse(driver.ErrConflict))
		transact(t, x, s, keyOf("x"), adds, everonce.Executed, nil)
		checkEqual(t, "balance", s.row("balance"), 30)
		s.on("Commit", 0, refuse(driver.ErrConflict))
		transact(t, x, s, keyOf("y"), adds, everonce.Failed, driver.ErrConflict)
	})
}

// Where a commit was lost and another attempt came first, what that one did is the answer.
func TestTransactWhoseCommitWasLostToAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newMapStore()
		x := newTxReceiver(t, s, nil)
		s.on("Commit", 1, func(context.Context, func() error) error {
			s.abort()
			res, err := everonce.Transact(context.Background(), newTxReceiver(t, s, nil), keyOf("x"), func(context.Context, *mapTx) (int, error) { return 7, nil })
			checkOutcome(t, res, err, everonce.Executed, nil)
			return errCommitLost
		})
		res, err := everonce.Transact(context.Background(), x, keyOf("x"), adds)
		checkOutcome(t, res, err, everonce.Replayed, nil)
		checkEqual(t, "value", res.Value, 7)
		checkEqual(t, "balance", s.row("balance"), 0)
	})
}

// That nothing of a transaction took hold says nothing of the operation around it.
func TestTransactInAnOperation(t *testing.T) {
	x := newTxReceiver(t, newMapStore(), nil)
	r := newReceiver(t, newFaultStore(), everonce.Refuse, nil)
	fails := func(context.Context, *mapTx) (int, error) { return 0, everonce.NotDone(errNet) }
	for name, inner := range map[string]func(context.Context) error{
		"Transact": func(ctx context.Context) error { _, err := everonce.Transact(ctx, x, keyOf("in"), fails); return err },
		"DoTx": func(ctx context.Context) error {
			return x.InTx(ctx, func(ctx context.Context, tx *mapTx) error {
				_, err := everonce.DoTx(ctx, tx, x, keyOf("in"), func(ctx context.Context) (int, error) { return fails(ctx, tx) })
				return err
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			do(t, r, keyOf(name), func(ctx context.Context, _ *everonce.Attempt) (string, error) {
				return "", inner(ctx)
			}, everonce.Unknown, everonce.ErrOutcomeUnknown)
		})
	}
}

// A commit that was lost, and then found not to have been made, says nothing of the runs that follow: what became
// of those is known.
func TestTransactForgetsALostCommitThatWasNotMade(t *testing.T) {
	for name, w := range map[string]txWork{
		"of the work":    adds,
		"of its refusal": addsThen(func(*mapTx) error { return everonce.Permanent("declined", nil, nil) }),
	} {
		t.Run(name, func(t *testing.T) {
			ways(t, func(t *testing.T, o everonce.Options) {
				s := newMapStore()
				x := newTxReceiver(t, s, &o)
				s.on("Commit", 0, refuse(errDeadlock))
				s.on("Commit", 1, func(context.Context, func() error) error {
					s.abort()
					return errCommitLost
				})
				_, err := transact(t, x, s, keyOf("x"), w, everonce.Failed, everonce.ErrStore)
				checkErr(t, err, errDeadlock)
				checkEqual(t, "it is unknown", errors.Is(err, everonce.ErrOutcomeUnknown), false)
				checkEqual(t, "balance", s.row("balance"), 0)
			})
		})
	}
}

// A commit whose answer does not come is given up after the CompletionTimeout, and a rollback after a StoreTimeout,
// in every mode.
func TestACommitThatHangsIsGivenUp(t *testing.T) {
	o := &everonce.Options{CompletionTimeout: 20 * time.Second, StoreTimeout: 3 * time.Second, TxTimeout: time.Hour, TxRetries: -1}
	for name, call := range map[string]func(s *mapStore, x *everonce.TxReceiver[*mapTx], err error) error{
		"Transact": func(_ *mapStore, x *everonce.TxReceiver[*mapTx], err error) error {
			_, err = everonce.Transact(context.Background(), x, keyOf("x"), func(context.Context, *mapTx) (int, error) { return 1, err })
			return err
		},
		"InTx": func(_ *mapStore, x *everonce.TxReceiver[*mapTx], err error) error {
			return x.InTx(context.Background(), func(context.Context, *mapTx) error { return err })
		},
		"StepTx": func(s *mapStore, x *everonce.TxReceiver[*mapTx], err error) error {
			_, err = everonce.Do(context.Background(), newReceiver(t, s, everonce.Refuse, o), keyOf("x"), func(ctx context.Context, a *everonce.Attempt) (int, error) {
				return everonce.StepTx(ctx, a, x, "charge", func(context.Context, *mapTx) (int, error) { return 1, err })
			})
			return err
		},
		"TransactBatch": func(s *mapStore, _ *everonce.TxReceiver[*mapTx], err error) error {
			all := newTxReceiver(t, batchStore{s}, o)
			res, called := everonce.TransactBatch(context.Background(), all, items("a", "b"), func(context.Context, *mapTx, []int) ([]int, error) { return []int{1, 1}, err })
			return errors.Join(called, res[0].Err)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				for method, c := range map[string]struct {
					workErr error
					want    time.Duration
				}{"Commit": {nil, o.CompletionTimeout}, "Rollback": {errWork, o.StoreTimeout}} {
					s := newMapStore()
					x := newTxReceiver(t, s, o)
					var took time.Duration
					s.on(method, 0, func(ctx context.Context, call func() error) error {
						from := time.Now()
						err := hang(ctx, call)
						if took == 0 {
							took = time.Since(from)
						}
						s.abort()
						return err
					})
					checkErr(t, call(s, x, c.workErr), errAny)
					checkEqual(t, method+" takes", took, c.want)
				}
			})
		})
	}
}
