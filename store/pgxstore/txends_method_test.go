package pgxstore_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/driver"
)

// overSQL runs a test over database/sql, with pgx's own driver and with one that wraps it.
func overSQL(t *testing.T, test func(*testing.T, *handle[*sql.Tx])) {
	t.Helper()
	for name, open := range map[string]func(testing.TB, setup) *handle[*sql.Tx]{"stdlib": newSQL, "wrapped": newWrapped} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, open(t, setup{}))
		})
	}
}

// methods are what the work has at hand with database/sql to end the transaction that it was lent.
var methods = []struct {
	name    string
	end     func(*sql.Tx) error
	effects int64
}{{"Commit", (*sql.Tx).Commit, 1}, {"Rollback", (*sql.Tx).Rollback, 0}}

// after is what the work says when it has ended its transaction.
var after = map[string]func() error{
	"returns": func() error { return nil },
	"fails":   func() error { return errNo },
	"refuses": func() error { return everonce.Permanent("no", nil, nil) },
	"panics":  func() error { panic(errNo) },
}

// Work that ends its transaction by the method is never recorded as done, nor told as failed, nor run again, in whatever it runs, and
// whatever it says then: what became of its effect is unknown.
func TestWorkThatEndsItByTheMethod(t *testing.T) {
	t.Parallel()
	overSQL(t, func(t *testing.T, h *handle[*sql.Tx]) {
		receiver, err := everonce.NewTxReceiver(h.store, nil)
		noErr(t, err)
		guarded, err := everonce.NewReceiver(h.store, everonce.Refuse, nil)
		noErr(t, err)
		transact := func(opts ...everonce.CallOption) func(everonce.Key, func(context.Context, *sql.Tx) (string, error)) error {
			return func(key everonce.Key, work func(context.Context, *sql.Tx) (string, error)) error {
				_, err := everonce.Transact(t.Context(), receiver, key, work, opts...)
				return err
			}
		}
		for in, run := range map[string]func(everonce.Key, func(context.Context, *sql.Tx) (string, error)) error{
			"claim first": transact(),
			"optimistic":  transact(everonce.Optimistic()),
			"batch": func(key everonce.Key, work func(context.Context, *sql.Tx) (string, error)) error {
				items := []everonce.BatchItem{{Key: everonce.Key{Scope: key.Scope, ID: key.ID + ", beside"}}, {Key: key}}
				all, err := everonce.TransactBatch(t.Context(), receiver, items, everonce.EachItem(func(ctx context.Context, tx *sql.Tx, i int) (string, error) {
					if i == 0 {
						return "v", nil
					}
					return work(ctx, tx)
				}))
				noErr(t, err)
				return errors.Join(all[0].Err, all[1].Err)
			},
			"step": func(key everonce.Key, work func(context.Context, *sql.Tx) (string, error)) error {
				_, err := everonce.Do(t.Context(), guarded, key, func(ctx context.Context, a *everonce.Attempt) (string, error) {
					return everonce.StepTx(ctx, a, receiver, "charge", work)
				})
				return err
			},
			"InTx": func(_ everonce.Key, work func(context.Context, *sql.Tx) (string, error)) error {
				return receiver.InTx(t.Context(), func(ctx context.Context, tx *sql.Tx) error {
					_, err := work(ctx, tx)
					return err
				})
			},
			"a DoTx inside": func(key everonce.Key, work func(context.Context, *sql.Tx) (string, error)) error {
				return transact()(key, func(ctx context.Context, tx *sql.Tx) (string, error) {
					_, _ = everonce.DoTx(ctx, tx, receiver, everonce.Key{Scope: "inner", ID: key.ID}, func(ctx context.Context) (string, error) { //nolint:errcheck // the work does not look
						return work(ctx, tx)
					})
					return "v", nil
				})
			},
		} {
			for _, by := range methods {
				for then, says := range after {
					key, runs := everonce.Key{Scope: "method", ID: in + ", " + by.name + ", " + then}, 0
					deliver := func() (err error) {
						defer func() {
							if p := recover(); p != nil && then != "panics" {
								panic(p)
							}
						}()
						return run(key, func(ctx context.Context, tx *sql.Tx) (string, error) {
							runs++
							noErr(t, errors.Join(h.effect(ctx, tx, key.ID), by.end(tx)))
							return "v", says()
						})
					}
					err := deliver()
					if then != "panics" {
						unknown(t, key.ID, err)
					}
					if in != "InTx" { // it has no key that remembers
						unknown(t, key.ID+", again", deliver())
					}
					if n := h.effects(t, key.ID); n != by.effects || runs != 1 {
						t.Errorf("%s: %d effects after %d runs; want %d, after one", key.ID, n, runs, by.effects)
					}
				}
			}
		}
	})
}

// The end of its time is not the work's doing, though database/sql answers to both that the transaction has ended.
func TestTheEndOfItsTimeIsNotTheWorks(t *testing.T) {
	t.Parallel()
	overSQL(t, func(t *testing.T, h *handle[*sql.Tx]) {
		receiver, err := everonce.NewTxReceiver(h.store, &everonce.Options{TxTimeout: time.Second})
		noErr(t, err)
		for then, workErr := range map[string]error{"returns": nil, "fails": errNo} {
			key := everonce.Key{Scope: "time", ID: then}
			res, err := everonce.Transact(t.Context(), receiver, key, func(ctx context.Context, tx *sql.Tx) (string, error) {
				noErr(t, h.effect(ctx, tx, key.ID))
				<-ctx.Done()
				for err := error(nil); !errors.Is(err, sql.ErrTxDone); { // until database/sql has rolled it back
					_, err = tx.ExecContext(t.Context(), "SELECT 1")
				}
				return "v", workErr
			})
			if n := h.effects(t, key.ID); !errors.Is(err, driver.ErrTxTooLong) || res.Outcome != everonce.Failed || n != 0 {
				t.Errorf("%s: %v, %v, with %d effects; want failed, too long, with none", then, res.Outcome, err, n)
			}
		}
	})
}

// A DoTx whose work commits the caller's own transaction by the method is doomed, and records nothing. That it is not told as unknown is in
// the reference.
func TestDoTxThatCommitsByTheMethod(t *testing.T) {
	t.Parallel()
	both(t, setup{}, testDoTxCommits[pgx.Tx], testDoTxCommits[*sql.Tx])
}

func testDoTxCommits[Tx any](t *testing.T, h *handle[Tx]) {
	receiver, err := everonce.NewTxReceiver(h.store, nil)
	noErr(t, err)
	for says, workErr := range map[string]error{"returns": nil, "fails": errNo, "refuses": everonce.Permanent("no", nil, nil)} {
		key := everonce.Key{Scope: "DoTx commits", ID: says}
		tx, err := h.begin(t.Context(), sql.LevelDefault)
		noErr(t, err)
		for try := range 2 {
			_, err := everonce.DoTx(t.Context(), tx, receiver, key, func(ctx context.Context) (string, error) {
				if try > 0 {
					t.Errorf("%s: the work runs in a transaction that is doomed", says)
				}
				noErr(t, errors.Join(h.effect(ctx, tx, key.ID), h.commit(ctx, tx)))
				return "v", workErr
			})
			if !errors.Is(err, driver.ErrTxDoomed) {
				t.Errorf("%s: %v, want doomed", says, err)
			}
		}
		got, err := h.store.Get(t.Context(), driver.GetRequest{ID: key.RecordID()})
		if noErr(t, err); got.Found {
			t.Errorf("%s: there is a record, %v", says, got.Record.State)
		}
	}
}
