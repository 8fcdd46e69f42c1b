package natural

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"testing"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/oncetest"
)

// shape is an operation that keeps its key in the business table: it is put through the whole practice list.
type shape struct {
	capabilities oncetest.Capabilities
	// deliver sends it; first says that this call did it.
	deliver func(ctx context.Context, db DB, op oncetest.Operation) (result any, first bool, err error)
	// effects counts it.
	effects string
}

// errors of the shapes that say that the key came with other content.
var otherContent = []error{ErrOtherDeposit, ErrOtherAmount, ErrOtherQuantity}

func (s shape) run(t *testing.T) {
	t.Helper()
	s.capabilities.Concurrency, s.capabilities.EffectFaults, s.capabilities.Restarts = true, true, true
	var system func(db *sql.DB, f *oncetest.Faults) oncetest.System
	system = func(db *sql.DB, f *oncetest.Faults) oncetest.System {
		return oncetest.System{
			Deliver: func(ctx context.Context, op oncetest.Operation) (a oncetest.Answer) {
				var first bool
				err := f.Effect(ctx, op.Key, func() (err error) {
					a.Result, first, err = s.deliver(ctx, db, op)
					return err
				})
				a.Outcome, a.Err = everonce.Replayed, err
				if first {
					a.Outcome = everonce.Executed
				}
				if err != nil {
					a.Outcome = everonce.Failed
				}
				for _, other := range otherContent {
					if errors.Is(err, other) {
						a.Outcome = everonce.Mismatch
					}
				}
				return a
			},
			Effects: func(ctx context.Context, op oncetest.Operation) (n int, err error) {
				return n, db.QueryRowContext(ctx, s.effects, op.Key).Scan(&n)
			},
			Restart: func(f *oncetest.Faults) oncetest.System { return system(db, f) },
		}
	}
	oncetest.Run(t, oncetest.Subject{
		Mode: oncetest.Transactional, Capabilities: s.capabilities,
		New: func(tb testing.TB, f *oncetest.Faults) oncetest.System {
			tb.Helper()
			db := open(tb)
			exec(tb, db, `UPDATE stock SET on_hand = 1000000`)
			return system(db, f)
		},
	})
}

func TestAppendWithItemID(t *testing.T) {
	shape{
		deliver: func(ctx context.Context, db DB, op oncetest.Operation) (any, bool, error) {
			first, err := AppendComment(ctx, db, Comment{op.Key, "p1", "hello"})
			return nil, first, err
		},
		effects: `SELECT count(*) FROM comment WHERE id = ?`,
	}.run(t)
}

func TestReservationPerOrderAndProduct(t *testing.T) {
	shape{
		capabilities: oncetest.Capabilities{Fingerprints: true},
		deliver: func(ctx context.Context, db DB, op oncetest.Operation) (any, bool, error) {
			return nil, false, Reserve(ctx, db, op.Key, "tea", op.Amount)
		},
		effects: `SELECT count(*) FROM reservation WHERE order_id = ?`,
	}.run(t)
}

func TestAppliedDeposits(t *testing.T) {
	shape{
		capabilities: oncetest.Capabilities{Marks: true, Fingerprints: true},
		deliver: func(ctx context.Context, db DB, op oncetest.Operation) (any, bool, error) {
			first, err := ApplyDeposit(ctx, db, Deposit{op.Key, "alice", int64(op.Amount)})
			return nil, first, err
		},
		effects: `SELECT count(*) FROM deposit WHERE id = ?`,
	}.run(t)
}

func TestPaymentOncePerOrder(t *testing.T) {
	shape{
		capabilities: oncetest.Capabilities{Marks: true, Fingerprints: true},
		deliver: func(ctx context.Context, db DB, op oncetest.Operation) (any, bool, error) {
			// Every delivery makes up a payment ID: what makes it once is the order.
			return Pay(ctx, db, Payment{rand.Text(), op.Key, int64(op.Amount)})
		},
		effects: `SELECT count(*) FROM payment WHERE order_id = ?`,
	}.run(t)
}

func TestReservations(t *testing.T) {
	db := open(t)
	ctx := t.Context()
	want := func(what string, err, wanted error, left int) {
		t.Helper()
		n, countErr := Available(ctx, db, "tea")
		if !errors.Is(err, wanted) || wanted == nil && err != nil || countErr != nil || n != left {
			t.Errorf("%s: %v, and %d left (%v), want %v and %d", what, err, n, countErr, wanted, left)
		}
	}
	want("ten exist", nil, nil, 10)
	want("six", Reserve(ctx, db, "o1", "tea", 6), nil, 4)
	want("six again", Reserve(ctx, db, "o1", "tea", 6), nil, 4) // though there are only four left
	want("five for another order", Reserve(ctx, db, "o2", "tea", 5), ErrOutOfStock, 4)
	want("four for another order", Reserve(ctx, db, "o2", "tea", 4), nil, 0)
	want("seven in place of six", Reserve(ctx, db, "o1", "tea", 7), ErrOtherQuantity, 0)
	want("no such product", Reserve(ctx, db, "o1", "milk", 1), ErrOutOfStock, 0)
	for range 2 {
		want("cancelled", CancelReservation(ctx, db, "o1", "tea"), nil, 6)
	}
}

func TestBalanceIsTheSumOfDeposits(t *testing.T) {
	db := open(t)
	for _, d := range []Deposit{{"d1", "alice", 100}, {"d2", "alice", 20}, {"d1", "alice", 100}, {"d3", "bob", 5}} {
		if _, err := ApplyDeposit(t.Context(), db, d); err != nil {
			t.Fatal(err)
		}
	}
	if cents, err := Balance(t.Context(), db, "alice"); err != nil || cents != 120 {
		t.Errorf("the balance is %d (%v), want 120", cents, err)
	}
}
