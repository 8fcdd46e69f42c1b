package pgxstore_test

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/driver"
)

var errNo = errors.New("no")

// unknown is the error of an operation whose work has ended its transaction.
func unknown(t *testing.T, what string, err error) {
	t.Helper()
	if e, ok := errors.AsType[*everonce.Error](err); !ok || e.Outcome != everonce.Unknown || !errors.Is(err, everonce.ErrOutcomeUnknown) {
		t.Errorf("%s: %v, want unknown", what, err)
	}
}

// Work that has ended its transaction, and then says that it failed, in whatever words, has failed for nobody: what it committed holds,
// and is not had once more under its key.
func TestWorkThatEndsItsTransactionAndFails(t *testing.T) {
	t.Parallel()
	both(t, setup{}, testEndsAndFails[pgx.Tx], testEndsAndFails[*sql.Tx])
}

func testEndsAndFails[Tx any](t *testing.T, h *handle[Tx]) {
	receiver, err := everonce.NewTxReceiver(h.store, nil)
	noErr(t, err)
	for name, workErr := range map[string]error{"refused": everonce.Permanent("no", nil, nil), "failed": errNo, "not done": everonce.NotDone(errNo)} {
		for how, opts := range map[string][]everonce.CallOption{" claim first": nil, " optimistic": {everonce.Optimistic()}} {
			key := everonce.Key{Scope: "ends and fails", ID: name + how}
			for range 2 {
				res, err := everonce.Transact(t.Context(), receiver, key, func(ctx context.Context, tx Tx) (string, error) {
					noErr(t, errors.Join(h.effect(ctx, tx, key.ID), h.exec(ctx, tx, "COMMIT")))
					return "", workErr
				}, opts...)
				unknown(t, key.ID, err)
				if n := h.effects(t, key.ID); n != 1 || res.Outcome != everonce.Unknown {
					t.Errorf("%s: %v, with %d effects", key.ID, res.Outcome, n)
				}
			}
		}
	}
	key := everonce.Key{Scope: "ends and fails", ID: "panic"}
	for range 2 {
		func() {
			defer func() { _ = recover() }()
			_, err := everonce.Transact(t.Context(), receiver, key, func(ctx context.Context, tx Tx) (string, error) {
				noErr(t, errors.Join(h.effect(ctx, tx, key.ID), h.exec(ctx, tx, "COMMIT")))
				panic(errNo)
			})
			unknown(t, "after a panic", err)
		}()
	}
	if n := h.effects(t, key.ID); n != 1 {
		t.Errorf("a panic: %d effects", n)
	}
}

// The same in InTx. Over database/sql a transaction that the work has begun meanwhile is not told from the one before.
func TestInTxThatIsEnded(t *testing.T) {
	t.Parallel()
	both(t, setup{}, testInTxIsEnded[pgx.Tx], testInTxIsEnded[*sql.Tx])
}

func testInTxIsEnded[Tx any](t *testing.T, h *handle[Tx]) {
	receiver, err := everonce.NewTxReceiver(h.store, nil)
	noErr(t, err)
	for _, text := range ends {
		another := !strings.HasSuffix(text, "COMMIT") && !strings.HasSuffix(text, "ROLLBACK") // it has begun one
		if another && !h.pipes {
			continue
		}
		for name, workErr := range map[string]error{"": nil, " fails": errNo} {
			runs := 0
			err := receiver.InTx(t.Context(), func(ctx context.Context, tx Tx) error {
				runs++
				return errors.Join(h.effect(ctx, tx, "in "+text), h.exec(ctx, tx, text), workErr)
			})
			if another && workErr != nil {
				continue // told as failed: see the package's doc
			}
			unknown(t, text+name, err)
			if !errors.Is(err, driver.ErrTxDoomed) || runs != 1 {
				t.Errorf("%s%s: %v after %d runs; want doomed, after one", text, name, err, runs)
			}
		}
	}
}

// A batch of which one ends the transaction and fails, or panics, is unknown as a whole, and is not run again.
func TestBatchOfWhichOneEndsItAndFails(t *testing.T) {
	t.Parallel()
	both(t, setup{}, testBatchEndsAndFails[pgx.Tx], testBatchEndsAndFails[*sql.Tx])
}

func testBatchEndsAndFails[Tx any](t *testing.T, h *handle[Tx]) {
	receiver, err := everonce.NewTxReceiver(h.store, nil)
	noErr(t, err)
	for _, how := range []string{"fails", "panics"} {
		items := make([]everonce.BatchItem, 4)
		for i := range items {
			items[i].Key = everonce.Key{Scope: "batch ends", ID: how + string(rune('0'+i))}
		}
		runs := 0
		deliver := func() (all []everonce.BatchResult[string], err error) {
			defer func() { _ = recover() }()
			return everonce.TransactBatch(t.Context(), receiver, items, everonce.EachItem(func(ctx context.Context, tx Tx, i int) (string, error) {
				noErr(t, h.effect(ctx, tx, items[i].Key.ID))
				if i < 2 {
					return "v", nil
				}
				runs++
				noErr(t, h.exec(ctx, tx, "COMMIT"))
				if how == "panics" {
					panic(errNo)
				}
				return "", errNo
			}))
		}
		for range 2 {
			all, err := deliver()
			noErr(t, err)
			for i := range all {
				unknown(t, items[i].Key.ID, all[i].Err)
			}
		}
		for i := range 3 {
			if n := h.effects(t, items[i].Key.ID); n != 1 || runs != 1 {
				t.Errorf("%s: %d effects after %d runs", items[i].Key.ID, n, runs)
			}
		}
	}
}

// A step under Refuse that ends its transaction and panics is open: nobody runs it again.
func TestStepThatEndsItsTransactionAndPanics(t *testing.T) {
	t.Parallel()
	both(t, setup{}, testStepEndsAndPanics[pgx.Tx], testStepEndsAndPanics[*sql.Tx])
}

func testStepEndsAndPanics[Tx any](t *testing.T, h *handle[Tx]) {
	receiver, err := everonce.NewReceiver(h.store, everonce.Refuse, &everonce.Options{EffectsInSteps: true})
	noErr(t, err)
	txs, err := everonce.NewTxReceiver(h.store, nil)
	noErr(t, err)
	key := everonce.Key{Scope: "step ends", ID: "panics"}
	for range 2 {
		func() {
			defer func() { _ = recover() }()
			_, err := everonce.Do(t.Context(), receiver, key, func(ctx context.Context, a *everonce.Attempt) (string, error) {
				return everonce.StepTx(ctx, a, txs, "pay", func(ctx context.Context, tx Tx) (string, error) {
					noErr(t, errors.Join(h.effect(ctx, tx, "pay"), h.exec(ctx, tx, "COMMIT")))
					panic(errNo)
				})
			})
			unknown(t, "after a panic", err)
		}()
	}
	if n := h.effects(t, "pay"); n != 1 {
		t.Errorf("%d effects", n)
	}
}

// Time that runs out after the work has ended its transaction does not hide that.
func TestWorkThatEndsItsTransactionAndTakesTooLong(t *testing.T) {
	t.Parallel()
	both(t, setup{}, func(t *testing.T, h *handle[pgx.Tx]) {
		testEndsTooLate(t, h, func(ctx context.Context, tx pgx.Tx) error { return h.exec(ctx, tx, "COMMIT") })
	}, func(t *testing.T, h *handle[*sql.Tx]) {
		testEndsTooLate(t, h, func(_ context.Context, tx *sql.Tx) error { return tx.Commit() })
	})
}

func testEndsTooLate[Tx any](t *testing.T, h *handle[Tx], end func(context.Context, Tx) error) {
	receiver, err := everonce.NewTxReceiver(h.store, &everonce.Options{TxTimeout: time.Second})
	noErr(t, err)
	for says, workErr := range map[string]error{"returns": nil, "fails": errNo} {
		for how, opts := range map[string][]everonce.CallOption{" claim first": nil, " optimistic": {everonce.Optimistic()}} {
			key := everonce.Key{Scope: "late", ID: says + how}
			_, err := everonce.Transact(t.Context(), receiver, key, func(ctx context.Context, tx Tx) (string, error) {
				noErr(t, errors.Join(h.effect(ctx, tx, key.ID), end(ctx, tx)))
				for h.exec(t.Context(), tx, "SELECT 1") == nil { // until the connection is cut
				}
				<-ctx.Done()
				return "v", workErr
			}, opts...)
			unknown(t, key.ID, err)
		}
	}
}

// What another operation says of its own transaction is not said of the one around it: that is rolled back, and failed.
func TestAnEndOfAnothersTransaction(t *testing.T) {
	t.Parallel()
	both(t, setup{}, testAnothersEnd[pgx.Tx], testAnothersEnd[*sql.Tx])
}

func testAnothersEnd[Tx any](t *testing.T, h *handle[Tx]) {
	receiver, err := everonce.NewTxReceiver(h.store, nil)
	noErr(t, err)
	inner := newPgx(t, setup{})
	other, err := everonce.NewTxReceiver(inner.store, nil)
	noErr(t, err)
	key := everonce.Key{Scope: "border", ID: "outer"}
	res, err := everonce.Transact(t.Context(), receiver, key, func(ctx context.Context, tx Tx) (string, error) {
		noErr(t, h.effect(ctx, tx, "outer"))
		_, err := everonce.Transact(ctx, other, everonce.Key{Scope: "border", ID: "inner"}, func(ctx context.Context, tx pgx.Tx) (string, error) {
			return "v", inner.exec(ctx, tx, "COMMIT")
		})
		unknown(t, "inner", err)
		return "", err
	})
	found, errGet := h.store.Get(t.Context(), driver.GetRequest{ID: key.RecordID()})
	noErr(t, errGet)
	if res.Outcome != everonce.Failed || found.Found || h.effects(t, "outer") != 0 {
		t.Errorf("outer: %v, %v; a record: %v, %d effects; want failed, and nothing", res.Outcome, err, found.Found, h.effects(t, "outer"))
	}
}

// Where another attempt has the key's lock by the time of the commit, what was ended is unknown all the same, and the work is not run again.
func TestAnEndWhileAnotherHasTheLock(t *testing.T) {
	t.Parallel()
	both(t, setup{}, testEndAndLock[pgx.Tx], testEndAndLock[*sql.Tx])
}

func testEndAndLock[Tx any](t *testing.T, h *handle[Tx]) {
	receiver, err := everonce.NewTxReceiver(h.store, nil)
	noErr(t, err)
	for name, workErr := range map[string]error{"the other is done": nil, "the other fails": errNo} {
		key := everonce.Key{Scope: "lock", ID: name}
		has, goOn, done := make(chan struct{}), make(chan struct{}), make(chan struct{})
		runs := 0
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		go func() {
			defer close(done)
			select {
			case <-has:
			case <-ctx.Done():
				return
			}
			_, _ = everonce.Transact(ctx, receiver, key, func(ctx context.Context, tx Tx) (string, error) { //nolint:errcheck // it is in the way, no more
				has <- struct{}{}
				<-goOn
				return "other", workErr
			})
		}()
		_, err := everonce.Transact(ctx, receiver, key, func(ctx context.Context, tx Tx) (string, error) {
			runs++
			noErr(t, h.effect(ctx, tx, key.ID))
			noErr(t, h.exec(ctx, tx, "COMMIT; BEGIN"))
			has <- struct{}{}
			<-has
			return "v", nil
		})
		close(goOn)
		<-done
		unknown(t, name, err)
		if n := h.effects(t, key.ID); n != 1 || runs != 1 {
			t.Errorf("%s: %d effects after %d runs", name, n, runs)
		}
	}
}

// Rows that the work has left open are not the end of its transaction, and do not hide it.
func TestRowsOpenAndTheEnd(t *testing.T) {
	t.Parallel()
	h := newPgx(t, setup{})
	receiver, err := everonce.NewTxReceiver(h.store, nil)
	noErr(t, err)
	for name, c := range map[string]struct {
		text string
		want everonce.Outcome
	}{"first": {"", everonce.Failed}, "after a statement": {"SELECT 1", everonce.Failed}, "after the end": {"COMMIT", everonce.Unknown}} {
		for says, workErr := range map[string]error{"returns": nil, "fails": errNo} {
			key := everonce.Key{Scope: "rows", ID: name + ", " + says}
			res, err := everonce.Transact(t.Context(), receiver, key, func(ctx context.Context, tx pgx.Tx) (string, error) {
				if c.text != "" {
					noErr(t, errors.Join(h.effect(ctx, tx, key.ID), h.exec(ctx, tx, c.text)))
				}
				tx.QueryRow(ctx, "SELECT $1::int", 1)
				return "v", workErr
			}, everonce.Optimistic())
			if res.Outcome != c.want {
				t.Errorf("%s: %v, %v, with %d effects; want %v", key.ID, res.Outcome, err, h.effects(t, key.ID), c.want)
			}
		}
	}
}
