package pgxstore_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/driver"
)

var errCommitLost = errors.New("the answer to the commit was lost")

// lateStore holds back the packets of the first commit: who sent them gives up, and they arrive when the
// test lets them, on the transaction that is open all the while.
type lateStore[Tx any] struct {
	driver.TxStore[Tx]
	arrive func() error // the first commit; nil before it was sent
}

func (s *lateStore[Tx]) Begin(ctx context.Context, req driver.BeginRequest) (driver.TxHandle[Tx], driver.ClaimResult, error) {
	h, res, err := s.TxStore.Begin(ctx, req)
	if h == nil {
		return nil, res, err
	}
	return &lateHandle[Tx]{TxHandle: h, s: s}, res, err
}

func (s *lateStore[Tx]) ClassifyTx(err error) driver.TxErrorClass {
	if errors.Is(err, errCommitLost) {
		return driver.TxErrorCommitLost
	}
	return s.TxStore.ClassifyTx(err)
}

type lateHandle[Tx any] struct {
	driver.TxHandle[Tx]
	s    *lateStore[Tx]
	held bool
}

func (h *lateHandle[Tx]) Commit(ctx context.Context, req driver.CommitRequest) (res driver.CommitResult, err error) {
	if h.s.arrive != nil {
		return h.TxHandle.Commit(ctx, req)
	}
	h.held = true
	h.s.arrive = func() error { return errOf(h.TxHandle.Commit(context.WithoutCancel(ctx), req)) }
	return res, errCommitLost
}

// Rollback does not reach a server that the commit has not reached.
func (h *lateHandle[Tx]) Rollback(ctx context.Context) error {
	if h.held {
		return nil
	}
	return h.TxHandle.Rollback(ctx)
}

// A step's commit that was given up for lost, and made again, takes effect once, whichever of the two
// arrives first.
func TestStepTxWithADelayedCommitTakesEffectOnce(t *testing.T) {
	t.Parallel()
	both(t, setup{}, testLateStep[pgx.Tx], testLateStep[*sql.Tx])
}

func testLateStep[Tx any](t *testing.T, h *handle[Tx]) {
	for _, first := range []bool{true, false} {
		name := "the delayed commit arrives after the second"
		if first {
			name = "the delayed commit arrives before the second"
		}
		t.Run(name, func(t *testing.T) {
			s := &lateStore[Tx]{TxStore: h.store}
			r, err := everonce.NewReceiver(s, everonce.Refuse, &everonce.Options{EffectsInSteps: true})
			noErr(t, err)
			x, err := everonce.NewTxReceiver[Tx](s, nil)
			noErr(t, err)
			key, runs := everonce.Key{Scope: "late", ID: name}, 0
			res, err := everonce.Do(t.Context(), r, key, func(ctx context.Context, a *everonce.Attempt) (int, error) {
				v, err := everonce.StepTx(ctx, a, x, "charge", func(ctx context.Context, tx Tx) (int, error) {
					runs++
					if first && runs == 2 {
						noErr(t, s.arrive())
					}
					return runs, h.insert(ctx, tx, name)
				})
				if !first {
					if err := s.arrive(); !errors.Is(err, driver.ErrLeaseLost) {
						t.Errorf("the delayed commit says %v, want ErrLeaseLost", err)
					}
				}
				return v, err
			})
			if err != nil || res.Outcome != everonce.Executed {
				t.Errorf("%v, %v; want executed", res.Outcome, err)
			}
			want := 2
			if first { // what was saved is the answer, not what the latest run returned
				want = 1
			}
			if res.Value != want || runs != 2 {
				t.Errorf("value %d after %d runs, want %d after 2", res.Value, runs, want)
			}
			if n := h.inserted(t, name); n != 1 {
				t.Errorf("%d effects", n)
			}
			again, err := everonce.Do(t.Context(), r, key, func(context.Context, *everonce.Attempt) (int, error) {
				t.Error("the work of a finished operation ran")
				return 0, nil
			})
			if err != nil || again.Value != want {
				t.Errorf("replayed %d, %v; want %d", again.Value, err, want)
			}
		})
	}
}

// insert is an effect that does not wait for another transaction's of the same name.
func (h *handle[Tx]) insert(ctx context.Context, tx Tx, name string) error {
	return h.exec(ctx, tx, "INSERT INTO "+h.schema+".effect VALUES ($1 || '/' || gen_random_uuid(), 1)", name)
}

func (h *handle[Tx]) inserted(t testing.TB, name string) int64 {
	t.Helper()
	return number(t, "SELECT count(*) FROM "+h.schema+".effect WHERE starts_with(name, $1 || '/')", name)
}

// The same of a whole operation in a transaction, whose claim is the fence, or the conditional insert.
func TestTransactWithADelayedCommitTakesEffectOnce(t *testing.T) {
	t.Parallel()
	both(t, setup{}, testLateTransact[pgx.Tx], testLateTransact[*sql.Tx])
}

func testLateTransact[Tx any](t *testing.T, h *handle[Tx]) {
	for _, optimistic := range []bool{false, true} {
		name := "claim first"
		if optimistic {
			name = "optimistic"
		}
		t.Run(name, func(t *testing.T) {
			s := &arrivingStore[Tx]{lateStore: lateStore[Tx]{TxStore: h.store}, arrived: make(chan error, 1)}
			x, err := everonce.NewTxReceiver[Tx](s, &everonce.Options{Optimistic: optimistic})
			noErr(t, err)
			res, err := everonce.Transact(t.Context(), x, everonce.Key{Scope: "late", ID: name}, func(ctx context.Context, tx Tx) (int, error) {
				return 7, h.insert(ctx, tx, name)
			})
			if err != nil || res.Value != 7 {
				t.Errorf("%+v, %v", res, err)
			}
			if !s.sent {
				t.Fatal("no call looked for the commit whose answer was lost")
			}
			if err := <-s.arrived; err != nil && !errors.Is(err, driver.ErrConflict) {
				t.Errorf("the delayed commit says %v, want nothing or ErrConflict", err)
			}
			if n := h.inserted(t, name); n != 1 {
				t.Errorf("%d effects", n)
			}
		})
	}
}

// arrivingStore lets the delayed commit arrive when the next transaction has begun, and beside it: it may
// have to wait for that.
type arrivingStore[Tx any] struct {
	lateStore[Tx]
	arrived chan error
	sent    bool
}

func (s *arrivingStore[Tx]) Begin(ctx context.Context, req driver.BeginRequest) (driver.TxHandle[Tx], driver.ClaimResult, error) {
	h, res, err := s.lateStore.Begin(ctx, req)
	if s.arrive != nil && !s.sent {
		s.sent = true
		go func() { s.arrived <- s.arrive() }()
	}
	return h, res, err
}
