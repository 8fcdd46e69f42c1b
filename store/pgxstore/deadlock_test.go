package pgxstore_test

import (
	"context"
	"database/sql"
	"errors"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/driver"
)

// crossing is work that locks two rows, in one order or the other, and has both locked their first before
// either asks for its second: the server must end one of them.
type crossing struct {
	meet  sync.WaitGroup // both have their first row
	mu    sync.Mutex
	ended []error // the errors that the deadlock's victims got
}

func newCrossing() *crossing {
	c := new(crossing)
	c.meet.Add(2)
	return c
}

// deadlocks is the number of victims, each of which must be one of the server's.
func (c *crossing) deadlocks(t *testing.T) int {
	t.Helper()
	for _, err := range c.ended {
		if pgErr, ok := errors.AsType[*pgconn.PgError](err); !ok || pgErr.Code != "40P01" {
			t.Errorf("%v, want a deadlock (40P01)", err)
		}
	}
	return len(c.ended)
}

// crossedWork adds one to both rows. It crosses the other transaction in its first run only.
func crossedWork[Tx any](h *handle[Tx], c *crossing, first, second string, run int) func(ctx context.Context, tx Tx) error {
	return func(ctx context.Context, tx Tx) error {
		if err := h.effect(ctx, tx, first); err != nil {
			return err
		}
		if run == 1 {
			c.meet.Done()
			c.meet.Wait()
		}
		err := h.effect(ctx, tx, second)
		if err != nil {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.ended = append(c.ended, err)
		}
		return err
	}
}

func twoAccounts[Tx any](t *testing.T, h *handle[Tx]) {
	t.Helper()
	mustExec(t, "INSERT INTO "+h.schema+".effect VALUES ('a', 0), ('b', 0)")
}

// Transact runs the victim of a deadlock again, the whole of it.
func TestTransactRunsADeadlocksVictimAgain(t *testing.T) {
	t.Parallel()
	both(t, setup{}, testDeadlock[pgx.Tx], testDeadlock[*sql.Tx])
}

func testDeadlock[Tx any](t *testing.T, h *handle[Tx]) {
	for name, opts := range map[string][]everonce.CallOption{"claim first": nil, "optimistic": {everonce.Optimistic()}} {
		t.Run(name, func(t *testing.T) {
			mustExec(t, "TRUNCATE "+h.schema+".effect")
			twoAccounts(t, h)
			receiver, err := everonce.NewTxReceiver(h.store, nil)
			noErr(t, err)
			c := newCrossing()
			var wg sync.WaitGroup
			var runs [2]int
			for i, order := range [][2]string{{"a", "b"}, {"b", "a"}} {
				wg.Go(func() {
					key := everonce.Key{Scope: "deadlock", ID: name + order[0]}
					res, err := everonce.Transact(t.Context(), receiver, key, func(ctx context.Context, tx Tx) (int, error) {
						runs[i]++
						return runs[i], crossedWork(h, c, order[0], order[1], runs[i])(ctx, tx)
					}, opts...)
					if err != nil || res.Outcome != everonce.Executed || res.Value != runs[i] {
						t.Errorf("%s first: %+v, %v, want it executed by run %d", order[0], res, err, runs[i])
					}
				})
			}
			wg.Wait()
			// On a busy machine the victim may be back before the other has got what it waited for.
			if n := c.deadlocks(t); n < 1 || runs[0]+runs[1] != 2+n {
				t.Errorf("%d deadlocks, and the works ran %v times: want a deadlock, and each victim run again", n, runs)
			}
			if a, b := h.effects(t, "a"), h.effects(t, "b"); a != 2 || b != 2 {
				t.Errorf("%d and %d effects, want 2 of each", a, b)
			}
		})
	}
}

// DoTx runs nothing again: it tells the work's error. PostgreSQL goes back to the savepoint, locks and all,
// so the caller's transaction is alive, and may commit what else it holds.
func TestDoTxTellsADeadlock(t *testing.T) {
	t.Parallel()
	both(t, setup{}, testDoTxDeadlock[pgx.Tx], testDoTxDeadlock[*sql.Tx])
}

func testDoTxDeadlock[Tx any](t *testing.T, h *handle[Tx]) {
	ctx := t.Context()
	twoAccounts(t, h)
	receiver, err := everonce.NewTxReceiver(h.store, nil)
	noErr(t, err)
	c := newCrossing()
	// once is one transaction of the caller's, which commits whatever became of the DoTx in it.
	once := func(first, second string, run int, ran *int) (res everonce.Result[int], err error) {
		tx, err := h.begin(ctx, sql.LevelDefault)
		if err != nil {
			return res, err
		}
		res, err = everonce.DoTx(ctx, tx, receiver, everonce.Key{Scope: "deadlock", ID: first}, func(ctx context.Context) (int, error) {
			*ran++
			return run, crossedWork(h, c, first, second, run)(ctx, tx)
		})
		if err := errors.Join(h.effect(ctx, tx, "commit "+first), h.commit(ctx, tx)); err != nil {
			t.Errorf("the rest of the transaction: %v", err)
		}
		return res, err
	}
	orders := [][2]string{{"a", "b"}, {"b", "a"}}
	var results [2]everonce.Result[int]
	var errs [2]error
	var ran [2]int
	var wg sync.WaitGroup
	for i, order := range orders {
		wg.Go(func() { results[i], errs[i] = once(order[0], order[1], 1, &ran[i]) })
	}
	wg.Wait()
	if n := c.deadlocks(t); n != 1 || ran != [2]int{1, 1} {
		t.Fatalf("%d deadlocks, and the works ran %v times: want one deadlock, and no work twice", n, ran)
	}
	for i, order := range orders {
		if errs[i] == nil {
			if results[i].Outcome != everonce.Executed {
				t.Errorf("the one that was spared: %+v", results[i])
			}
			continue
		}
		if pgErr, ok := errors.AsType[*pgconn.PgError](errs[i]); !ok || pgErr.Code != "40P01" || errors.Is(errs[i], driver.ErrTxDoomed) || results[i].Outcome != everonce.Failed {
			t.Errorf("the victim: %+v, %v, want it failed by the deadlock", results[i], errs[i])
		}
		if n := h.effects(t, "commit "+order[0]); n != 1 {
			t.Errorf("%d effects of what else the victim's transaction held, want 1", n)
		}
		if res, err := everonce.Lookup[int](ctx, receiver, everonce.Key{Scope: "deadlock", ID: order[0]}); !errors.Is(err, everonce.ErrNotFound) {
			t.Errorf("the victim has left a record: %+v, %v", res, err)
		}
		if n := h.effects(t, order[0]); n != 1 {
			t.Errorf("%d effects on %s, want the effects of the other transaction", n, order[0])
		}
		if res, err := once(order[0], order[1], 2, &ran[i]); err != nil || res.Outcome != everonce.Executed {
			t.Errorf("the victim, when the caller does it again: %+v, %v", res, err)
		}
	}
	if a, b := h.effects(t, "a"), h.effects(t, "b"); a != 2 || b != 2 {
		t.Errorf("%d and %d effects, want 2 of each", a, b)
	}
}
