package pgxstore_test

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/driver"
)

// ends are texts by which work ends the transaction that it was lent.
var ends = []string{
	"COMMIT", "ROLLBACK", "SAVEPOINT s; ROLLBACK", "COMMIT; BEGIN", "ROLLBACK; BEGIN", "COMMIT AND CHAIN", "ROLLBACK AND CHAIN",
	"ROLLBACK; BEGIN; COMMIT", "ROLLBACK; START TRANSACTION ISOLATION LEVEL SERIALIZABLE; SAVEPOINT everonce_0",
}

// Work that ends the transaction that it was lent by the text of a statement is never recorded as done, and never run again: what
// became of its effect is unknown, and stays so under the key.
func TestWorkThatEndsItsTransaction(t *testing.T) {
	t.Parallel()
	both(t, setup{}, testEnds[pgx.Tx], testEnds[*sql.Tx])
}

func testEnds[Tx any](t *testing.T, h *handle[Tx]) {
	receiver, err := everonce.NewTxReceiver(h.store, nil)
	noErr(t, err)
	for _, text := range ends {
		end := func(ctx context.Context, tx Tx, key everonce.Key) error {
			if err := h.effect(ctx, tx, key.ID); err != nil {
				return err
			}
			return h.exec(ctx, tx, text)
		}
		for mode, run := range map[string]func(key everonce.Key, runs *int) (everonce.Outcome, error){
			"claim first": func(key everonce.Key, runs *int) (everonce.Outcome, error) {
				res, err := everonce.Transact(t.Context(), receiver, key, func(ctx context.Context, tx Tx) (string, error) {
					*runs++
					return "v", end(ctx, tx, key)
				})
				return res.Outcome, err
			},
			"optimistic": func(key everonce.Key, runs *int) (everonce.Outcome, error) {
				res, err := everonce.Transact(t.Context(), receiver, key, func(ctx context.Context, tx Tx) (string, error) {
					*runs++
					return "v", end(ctx, tx, key)
				}, everonce.Optimistic())
				return res.Outcome, err
			},
			"batch": func(key everonce.Key, runs *int) (everonce.Outcome, error) {
				other := everonce.Key{Scope: key.Scope, ID: key.ID + ", beside"}
				all, err := everonce.TransactBatch(t.Context(), receiver, []everonce.BatchItem{{Key: other}, {Key: key}},
					everonce.EachItem(func(ctx context.Context, tx Tx, i int) (string, error) {
						if i == 0 {
							return "v", nil
						}
						*runs++
						return "v", end(ctx, tx, key)
					}))
				noErr(t, err)
				return all[1].Outcome, all[1].Err
			},
			"a DoTx inside": func(key everonce.Key, runs *int) (everonce.Outcome, error) {
				res, err := everonce.Transact(t.Context(), receiver, key, func(ctx context.Context, tx Tx) (string, error) {
					*runs++
					if err := end(ctx, tx, key); err != nil {
						return "", err
					}
					_, err := everonce.DoTx(ctx, tx, receiver, everonce.Key{Scope: "inner", ID: key.ID}, func(context.Context) (string, error) { return "v", nil })
					if strings.HasSuffix(text, "BEGIN") || strings.HasSuffix(text, "CHAIN") {
						noErr(t, err)
					}
					return "v", nil
				})
				return res.Outcome, err
			},
		} {
			key, runs := everonce.Key{Scope: "ends", ID: mode + ": " + text}, 0
			t.Run(key.ID, func(t *testing.T) {
				if !h.pipes && mode == "optimistic" && !leavesNone(text) {
					t.Skip("not noticed, and told so in the package's comment")
				}
				outcome, err := run(key, &runs)
				if outcome != everonce.Unknown || !errors.Is(err, everonce.ErrOutcomeUnknown) || !errors.Is(err, driver.ErrTxDoomed) {
					t.Errorf("%v, %v; want unknown, doomed", outcome, err)
				}
				want := int64(0)
				if strings.HasPrefix(text, "COMMIT") {
					want = 1
				}
				if n := h.effects(t, key.ID); n != want {
					t.Errorf("%d effects, want %d", n, want)
				}
				got, err := h.store.Get(t.Context(), driver.GetRequest{ID: key.RecordID()})
				if noErr(t, err); got.Record.State != driver.StateAbandoned || got.Record.LastError != "tx_ended" {
					t.Errorf("the record is %v, %q; want abandoned, tx_ended", got.Record.State, got.Record.LastError)
				}
				outcome, err = run(key, &runs)
				if outcome != everonce.Unknown || !errors.Is(err, everonce.ErrOutcomeUnknown) || runs != 1 {
					t.Errorf("the repetition: %v, %v, after %d runs; want unknown, after one", outcome, err, runs)
				}
			})
		}
	}
}

// leavesNone reports whether a text leaves the connection outside of any transaction.
func leavesNone(text string) bool {
	return strings.HasSuffix(text, "COMMIT") || strings.HasSuffix(text, "ROLLBACK")
}

// The step of a guarded operation is unknown then, as one that was begun and not ended: its policy decides.
func TestStepThatEndsItsTransaction(t *testing.T) {
	t.Parallel()
	both(t, setup{}, testStepEnds[pgx.Tx], testStepEnds[*sql.Tx])
}

func testStepEnds[Tx any](t *testing.T, h *handle[Tx]) {
	receiver, err := everonce.NewTxReceiver(h.store, nil)
	noErr(t, err)
	guarded, err := everonce.NewReceiver(h.store, everonce.Refuse, nil)
	noErr(t, err)
	for _, text := range ends {
		t.Run(text, func(t *testing.T) {
			if !h.pipes && !leavesNone(text) {
				t.Skip("not noticed, and told so in the package's comment")
			}
			key, runs := everonce.Key{Scope: "step ends", ID: text}, 0
			do := func(text string) (everonce.Result[string], error) {
				return everonce.Do(t.Context(), guarded, key, func(ctx context.Context, a *everonce.Attempt) (string, error) {
					return everonce.StepTx(ctx, a, receiver, "charge", func(ctx context.Context, tx Tx) (string, error) {
						runs++
						return "v", errors.Join(h.effect(ctx, tx, key.ID), h.exec(ctx, tx, text))
					})
				})
			}
			for range 2 {
				res, err := do(text)
				e, _ := errors.AsType[*everonce.Error](err)
				if res.Outcome != everonce.Unknown || e == nil || e.Step != "charge" || runs != 1 {
					t.Errorf("%v, %v, after %d runs; want unknown, by the step, after one", res.Outcome, err, runs)
				}
			}
			got, err := h.store.Get(t.Context(), driver.GetRequest{ID: key.RecordID()})
			noErr(t, err)
			if step, _ := got.Record.Step("charge"); got.Record.State != driver.StateAbandoned || got.Record.UnknownStep != "charge" || step.State != driver.StepOpen {
				t.Errorf("the record is %v by %q, the step %v; want abandoned by the step, which is open", got.Record.State, got.Record.UnknownStep, step.State)
			}
			noErr(t, guarded.Settle(t.Context(), key, everonce.Settlement{Step: "charge", Verdict: everonce.SettleNotDone}))
			if res, err := do("SELECT 1"); err != nil || res.Outcome != everonce.Executed || runs != 2 {
				t.Errorf("settled: %v, %v, after %d runs", res.Outcome, err, runs)
			}
		})
	}
}

// A DoTx whose work ends the caller's transaction records nothing, whatever the caller does with what is left of it.
func TestDoTxThatEndsTheTransaction(t *testing.T) {
	t.Parallel()
	both(t, setup{}, testDoTxEnds[pgx.Tx], testDoTxEnds[*sql.Tx])
}

func testDoTxEnds[Tx any](t *testing.T, h *handle[Tx]) {
	receiver, err := everonce.NewTxReceiver(h.store, nil)
	noErr(t, err)
	for _, text := range ends {
		for name, workErr := range map[string]error{
			"done": nil, "refused": everonce.Permanent("no", nil, nil), "failed": errors.New("no"),
		} {
			t.Run(name+": "+text, func(t *testing.T) {
				if name == "failed" && strings.HasSuffix(text, "everonce_0") {
					t.Skip("nothing is to be recorded, and the savepoint that the work is rolled back to is of its own making")
				}
				key := everonce.Key{Scope: "joined ends", ID: name + text}
				own, err := h.begin(t.Context(), sql.LevelDefault)
				noErr(t, err)
				res, err := everonce.DoTx(t.Context(), own, receiver, key, func(ctx context.Context) (string, error) {
					noErr(t, errors.Join(h.effect(ctx, own, key.ID), h.exec(ctx, own, text)))
					return "v", workErr
				})
				if !errors.Is(err, driver.ErrTxDoomed) || res.Outcome != everonce.Unknown && workErr == nil {
					t.Errorf("%v, %v; want unknown, doomed", res.Outcome, err)
				}
				_ = h.commit(t.Context(), own) //nolint:errcheck // a caller that does not listen
				if n := number(t, "SELECT count(*) FROM "+h.record()+" WHERE name = $1", key.ID); n != 0 {
					t.Errorf("%d records, want none", n)
				}
			})
		}
	}
}

// What a transaction is known by is no query: its isolation may still be chosen, and a table locked before its snapshot. A way back
// to a savepoint keeps it.
func TestTheMarkOfATransactionIsNotInTheWay(t *testing.T) {
	t.Parallel()
	h := newPgx(t, setup{})
	receiver, err := everonce.NewTxReceiver(h.store, nil)
	noErr(t, err)
	for _, opts := range [][]everonce.CallOption{nil, {everonce.Optimistic()}} {
		key := everonce.Key{Scope: "mark", ID: "isolation"[len(opts):]}
		res, err := everonce.Transact(t.Context(), receiver, key, func(ctx context.Context, tx pgx.Tx) (string, error) {
			if opts != nil {
				noErr(t, h.exec(ctx, tx, "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ"))
			}
			noErr(t, h.exec(ctx, tx, "SAVEPOINT s; ROLLBACK TO s; SAVEPOINT everonce_0; RELEASE everonce_0"))
			inner, err := tx.Begin(ctx)
			noErr(t, err)
			noErr(t, inner.Rollback(ctx))
			_, err = everonce.DoTx(ctx, tx, receiver, everonce.Key{Scope: "inner", ID: key.ID}, func(context.Context) (string, error) {
				return "", everonce.Permanent("no", nil, nil)
			})
			if _, refused := errors.AsType[*everonce.PermanentError](err); !refused {
				t.Errorf("the DoTx inside: %v", err)
			}
			return "v", h.effect(ctx, tx, key.ID)
		}, opts...)
		if err != nil || res.Outcome != everonce.Executed {
			t.Errorf("%d options: %v, %v", len(opts), res.Outcome, err)
		}
	}
}

// RESET ALL takes the mark with it. Where there is no other, nothing is committed, and nobody is told that it failed.
func TestWorkThatResetsAll(t *testing.T) {
	t.Parallel()
	h := newPgx(t, setup{})
	receiver, err := everonce.NewTxReceiver(h.store, nil)
	noErr(t, err)
	for _, c := range []struct {
		opts    []everonce.CallOption
		want    everonce.Outcome
		effects int64
	}{{nil, everonce.Executed, 1}, {[]everonce.CallOption{everonce.Optimistic()}, everonce.Unknown, 0}} {
		key := everonce.Key{Scope: "reset", ID: c.want.String()}
		res, err := everonce.Transact(t.Context(), receiver, key, func(ctx context.Context, tx pgx.Tx) (string, error) {
			return "v", errors.Join(h.effect(ctx, tx, key.ID), h.exec(ctx, tx, "RESET ALL"))
		}, c.opts...)
		if n := h.effects(t, key.ID); res.Outcome != c.want || n != c.effects {
			t.Errorf("%v, %v, with %d effects; want %v, with %d", res.Outcome, err, n, c.want, c.effects)
		}
	}
}
