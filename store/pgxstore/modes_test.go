package pgxstore_test

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/driver"
)

// Every mode in which pgx may be set up to send statements works, for a pooler between us and the server.
func TestQueryExecModes(t *testing.T) {
	t.Parallel()
	for _, mode := range []pgx.QueryExecMode{
		pgx.QueryExecModeCacheStatement, pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeDescribeExec,
		pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol,
	} {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			both(t, setup{config: func(c *pgx.ConnConfig) { c.DefaultQueryExecMode = mode }}, testMode[pgx.Tx], testMode[*sql.Tx])
		})
	}
}

func testMode[Tx any](t *testing.T, h *handle[Tx]) {
	ctx := t.Context()
	data := []byte("\x00\xff'\\binary\x00")
	req := claimOf(everonce.Key{Scope: "modes/o'scope", ID: `o'key\ "ü"`})
	req.Fingerprint = driver.Fingerprint(everonce.FingerprintOf("x"))
	res, err := h.store.Claim(ctx, req)
	rec := decided(t, res, err, driver.DecideClaimed).Record
	for _, value := range [][]byte{data, {}} {
		step := driver.StepRecord{Name: "s" + string(rune('0'+len(value))), State: driver.StepDone, Attempt: 1, Result: driver.SavedResult{Kind: driver.ResultValue, Codec: "raw", Data: value}}
		_, err = h.store.SaveStep(ctx, driver.SaveStepRequest{ID: rec.ID, Token: rec.Token, Nonce: rec.Nonce, Step: step, Lease: time.Minute, Lifetime: everonce.ForWeb()})
		noErr(t, err)
	}
	done := completionOf(&rec, string(data))
	done.Result.Summary = []byte{0}
	_, err = h.store.Complete(ctx, done)
	noErr(t, err)
	got, err := h.store.Get(ctx, driver.GetRequest{ID: rec.ID})
	noErr(t, err)
	if r := got.Record; !bytes.Equal(r.Result.Data, data) || r.Scope != req.Scope || r.Name != req.Name || r.Fingerprint != req.Fingerprint || len(r.Steps) != 2 {
		t.Errorf("read back %+v", r)
	} else if empty, _ := r.Step("s0"); empty.Result.Data == nil {
		t.Error("an empty value came back as none")
	}

	claim := txClaimOf(everonce.Key{Scope: "modes", ID: "tx"})
	tx, res, err := h.store.Begin(ctx, driver.BeginRequest{Claim: &claim})
	rec = decided(t, res, err, driver.DecideClaimed).Record
	noErr(t, h.effect(ctx, tx.Tx(), "charge"))
	done = completionOf(&rec, string(data))
	noErr(t, errOf(tx.Commit(ctx, driver.CommitRequest{Complete: &done})))

	// a conflict rolls back in every mode, whichever code reads the answers
	tx, _, err = h.store.Begin(ctx, driver.BeginRequest{})
	noErr(t, err)
	noErr(t, h.effect(ctx, tx.Tx(), "charge"))
	done = completionOf(&driver.Record{ID: claim.ID, Nonce: driver.NewNonce()}, "late")
	claim.Nonce = done.Nonce
	if _, err := tx.Commit(ctx, driver.CommitRequest{Record: &claim, Complete: &done}); !errors.Is(err, driver.ErrConflict) {
		t.Errorf("the conflicting commit answers %v", err)
	}
	if n := h.effects(t, "charge"); n != 1 {
		t.Errorf("%d effects", n)
	}
	receiver, err := everonce.NewTxReceiver(h.store, nil)
	noErr(t, err)
	out, err := everonce.Transact(ctx, receiver, everonce.Key{Scope: "modes", ID: "engine"}, func(ctx context.Context, tx Tx) (string, error) {
		return "v", h.effect(ctx, tx, "engine")
	}, everonce.Optimistic())
	noErr(t, err)
	if out.Outcome != everonce.Executed || h.effects(t, "engine") != 1 {
		t.Errorf("%v with %d effects", out.Outcome, h.effects(t, "engine"))
	}
}

// Where the database's own default is an isolation above read committed, guarded calls cause serialization failures
// among themselves, and are answered all the same.
func TestGuardedCallsUnderADefaultIsolation(t *testing.T) {
	t.Parallel()
	for _, level := range []string{"repeatable read", "serializable"} {
		t.Run(level, func(t *testing.T) {
			t.Parallel()
			both(t, setup{config: func(c *pgx.ConnConfig) { c.RuntimeParams["default_transaction_isolation"] = level }, conns: 8}, testDefaultIsolation[pgx.Tx], testDefaultIsolation[*sql.Tx])
		})
	}
}

func testDefaultIsolation[Tx any](t *testing.T, h *handle[Tx]) {
	const callers, keys = 16, 10
	r, err := everonce.NewReceiver(h.store, everonce.Refuse, &everonce.Options{Wait: time.Minute})
	noErr(t, err)
	var group sync.WaitGroup
	var ran atomic.Int64
	for range callers {
		group.Go(func() {
			for i := range keys {
				res, err := everonce.Do(t.Context(), r, everonce.Key{Scope: "level", ID: strconv.Itoa(i)}, func(context.Context, *everonce.Attempt) (string, error) {
					ran.Add(1)
					return "v", nil
				})
				if err != nil || res.Value != "v" {
					t.Errorf("%v, %q, %v", res.Outcome, res.Value, err)
				}
			}
		})
	}
	group.Wait()
	if ran.Load() != keys {
		t.Errorf("%d executions of %d operations", ran.Load(), keys)
	}
}

// A call that only reads gets none of those failures, however long it takes and whatever is written meanwhile.
func TestReadsUnderADefaultIsolation(t *testing.T) {
	t.Parallel()
	strict := func(c *pgx.ConnConfig) { c.RuntimeParams["default_transaction_isolation"] = "serializable" }
	both(t, setup{config: strict, conns: 8}, testReadsUnderDefault[pgx.Tx], testReadsUnderDefault[*sql.Tx])
}

func testReadsUnderDefault[Tx any](t *testing.T, h *handle[Tx]) {
	const writers, readers, keys = 4, 4, 40
	r, err := everonce.NewReceiver(h.store, everonce.Refuse, nil)
	noErr(t, err)
	var writing, reading sync.WaitGroup
	done := make(chan struct{})
	for w := range writers {
		writing.Go(func() {
			for i := range keys {
				key := everonce.Key{Scope: "level", ID: strconv.Itoa(w*keys + i)}
				_, err := everonce.Do(t.Context(), r, key, func(ctx context.Context, a *everonce.Attempt) (string, error) {
					return everonce.Step(ctx, a, "step", func(context.Context) (string, error) { return "v", nil })
				})
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	for range readers {
		reading.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-done:
					return
				default:
				}
				_, getErr := h.store.Get(t.Context(), driver.GetRequest{ID: everonce.Key{Scope: "level", ID: strconv.Itoa(i % keys)}.RecordID()})
				_, healthErr := h.store.Health(t.Context(), driver.HealthRequest{})
				_, listErr := h.store.List(t.Context(), driver.ListRequest{Limit: keys})
				if err := errors.Join(getErr, healthErr, listErr); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	writing.Wait()
	close(done)
	reading.Wait()
}
