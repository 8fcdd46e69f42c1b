package pgxstore_test

import (
	"context"
	"database/sql"
	"errors"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/driver"
)

// No call takes a second connection while it has one: in a pool of one, callers of every mode wait in turn, and never
// for each other.
func TestOneConnectionIsEnough(t *testing.T) {
	t.Parallel()
	both(t, setup{conns: 1}, testOneConnection[pgx.Tx], testOneConnection[*sql.Tx])
}

func testOneConnection[Tx any](t *testing.T, h *handle[Tx]) {
	patient := &everonce.Options{Lease: time.Minute, StoreTimeout: time.Minute, TxTimeout: time.Minute} // who waits in turn, waits long on a slow machine
	guarded, err := everonce.NewReceiver(h.store, everonce.Refuse, patient)
	noErr(t, err)
	receiver, err := everonce.NewTxReceiver(h.store, patient)
	noErr(t, err)
	work := func(context.Context, Tx) (int, error) { return 1, nil }
	transact := func(key everonce.Key, opts ...everonce.CallOption) error {
		_, err := everonce.Transact(t.Context(), receiver, key, work, opts...)
		return err
	}
	modes := map[string]func(everonce.Key) error{
		"a step in a transaction": func(key everonce.Key) error {
			_, err := everonce.Do(t.Context(), guarded, key, func(ctx context.Context, a *everonce.Attempt) (int, error) {
				if _, err := everonce.Step(ctx, a, "one", func(context.Context) (int, error) { return 1, nil }); err != nil {
					return 0, err
				}
				return everonce.StepTx(ctx, a, receiver, "two", work)
			})
			return err
		},
		"transactional": func(key everonce.Key) error { return transact(key) },
		"optimistic":    func(key everonce.Key) error { return transact(key, everonce.Optimistic()) },
		"a permanent failure, saved by a second transaction": func(key everonce.Key) error {
			_, err := everonce.Transact(t.Context(), receiver, key, func(context.Context, Tx) (int, error) {
				return 0, everonce.Permanent("no_funds", errors.New("no"), nil)
			})
			if permanent := new(everonce.PermanentError); errors.As(err, &permanent) {
				return nil
			}
			return err
		},
		"a batch": func(key everonce.Key) error {
			results, err := everonce.TransactBatch(t.Context(), receiver, []everonce.BatchItem{{Key: key}, {Key: everonce.Key{Scope: key.Scope, ID: key.ID + "b"}}},
				everonce.EachItem(func(context.Context, Tx, int) (int, error) { return 1, nil }))
			for _, r := range results {
				err = errors.Join(err, r.Err)
			}
			return err
		},
		"a transaction without a key": func(everonce.Key) error {
			return receiver.InTx(t.Context(), func(context.Context, Tx) error { return nil })
		},
	}
	var group sync.WaitGroup
	for mode, call := range modes {
		for i := range 4 {
			group.Go(func() {
				if err := call(everonce.Key{Scope: driver.ScopeOf("pool", mode), ID: strconv.Itoa(i)}); err != nil {
					t.Errorf("%s: %v", mode, err)
				}
			})
		}
	}
	group.Wait()
}

// Work that asks the pool for another connection while it holds one can stop all calls, but not for ever: at its
// TxTimeout it gets an error and its effects are rolled back, and callers that waited for a connection get a store
// error before that.
func TestWorkThatTakesASecondConnection(t *testing.T) {
	t.Parallel()
	both(t, setup{conns: 1}, testSecondConnection[pgx.Tx], testSecondConnection[*sql.Tx])
}

func testSecondConnection[Tx any](t *testing.T, h *handle[Tx]) {
	receiver, err := everonce.NewTxReceiver(h.store, &everonce.Options{TxTimeout: 5 * time.Second, StoreTimeout: 2 * time.Second, TxRetries: -1})
	noErr(t, err)
	noErr(t, receiver.Ready(t.Context()))
	var waiting sync.WaitGroup
	res, err := everonce.Transact(t.Context(), receiver, everonce.Key{Scope: "pool", ID: "greedy"}, func(ctx context.Context, tx Tx) (string, error) {
		noErr(t, h.effect(ctx, tx, "charge"))
		waiting.Go(func() {
			res, err := everonce.Transact(t.Context(), receiver, everonce.Key{Scope: "pool", ID: "other"}, func(context.Context, Tx) (string, error) { return "v", nil })
			if res.Outcome != everonce.StoreFailed || !errors.Is(err, driver.ErrStore) || !strings.Contains(err.Error(), "begin: context deadline exceeded") {
				t.Errorf("who waits for a connection: %v, %v", res.Outcome, err)
			}
		})
		var one string
		return "v", h.query(ctx, "SELECT '1'").Scan(&one)
	})
	waiting.Wait()
	if res.Outcome != everonce.Failed || !errors.Is(err, driver.ErrTxTooLong) {
		t.Errorf("the work that takes two: %v, %v; want ErrTxTooLong", res.Outcome, err)
	}
	if n := h.effects(t, "charge"); n != 0 {
		t.Errorf("%d effects of what was rolled back", n)
	}
}
