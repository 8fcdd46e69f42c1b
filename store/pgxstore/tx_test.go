package pgxstore_test

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/store/pgxstore"
)

// soon is below what a call that waits takes until its bound (a rollback's, 5 s), and far above one that does not.
const soon = 4 * time.Second

// atOnce fails the test if fn takes long.
func atOnce(t *testing.T, what string, fn func()) {
	t.Helper()
	start := time.Now()
	fn()
	if d := time.Since(start); d > soon {
		t.Errorf("%s took %v: it waited", what, d)
	}
}

func TestTransactionCommitsBoth(t *testing.T) {
	t.Parallel()
	both(t, setup{}, testCommitsBoth[pgx.Tx], testCommitsBoth[*sql.Tx])
}

func testCommitsBoth[Tx any](t *testing.T, h *handle[Tx]) {
	ctx := t.Context()
	claim := txClaimOf(testKey)
	tx, res, err := h.store.Begin(ctx, driver.BeginRequest{Claim: &claim})
	rec := decided(t, res, err, driver.DecideClaimed).Record
	noErr(t, h.effect(ctx, tx.Tx(), "charge"))
	if n := number(t, "SELECT count(*) FROM "+h.record()); n != 0 || h.effects(t, "charge") != 0 {
		t.Errorf("%d records and %d effects before the commit", n, h.effects(t, "charge"))
	}
	done := completionOf(&rec, "receipt")
	noErr(t, errOf(tx.Commit(ctx, driver.CommitRequest{Complete: &done})))
	noErr(t, tx.Rollback(ctx)) // does nothing
	if n := h.effects(t, "charge"); n != 1 {
		t.Errorf("%d effects", n)
	}
	claim = txClaimOf(testKey)
	tx, res, err = h.store.Begin(ctx, driver.BeginRequest{Claim: &claim})
	if decided(t, res, err, driver.DecideReplay); tx != nil {
		t.Error("a replay left a transaction open")
	}
	if got := string(res.Record.Result.Data); got != "receipt" {
		t.Errorf("replayed %q", got)
	}
}

// A duplicate learns that the first one runs, and does not wait for it: neither before the first has written its record
// nor after.
func TestDuplicateDoesNotWait(t *testing.T) {
	t.Parallel()
	both(t, setup{}, testDuplicate[pgx.Tx], testDuplicate[*sql.Tx])
}

func testDuplicate[Tx any](t *testing.T, h *handle[Tx]) {
	ctx := t.Context()
	own, err := h.begin(ctx, sql.LevelDefault)
	noErr(t, err)
	joined, err := h.store.Join(t.Context(), own)
	noErr(t, err)
	res, err := joined.Claim(ctx, txClaimOf(testKey))
	rec := decided(t, res, err, driver.DecideClaimed).Record

	duplicates := func(when string) {
		t.Helper()
		atOnce(t, "a transactional duplicate "+when, func() {
			claim := txClaimOf(testKey)
			_, res, err := h.store.Begin(ctx, driver.BeginRequest{Claim: &claim})
			decided(t, res, err, driver.DecideInProgress)
		})
		atOnce(t, "a guarded duplicate "+when, func() {
			res, err := h.store.Claim(ctx, claimOf(testKey))
			decided(t, res, err, driver.DecideInProgress)
		})
		for _, looked := range []bool{false, true} {
			atOnce(t, "an optimistic duplicate "+when, func() {
				claim := txClaimOf(testKey)
				if looked { // then the record is written as one that was seen to be new
					got, err := h.store.Get(ctx, driver.GetRequest{ID: claim.ID, Brief: true})
					if noErr(t, err); got.Found {
						t.Errorf("the record exists %s", when)
					}
				}
				tx, _, err := h.store.Begin(ctx, driver.BeginRequest{})
				noErr(t, err)
				noErr(t, h.effect(ctx, tx.Tx(), "optimistic"))
				done := completionOf(&driver.Record{ID: claim.ID, Nonce: claim.Nonce}, "late")
				if _, err := tx.Commit(ctx, driver.CommitRequest{Record: &claim, Complete: &done}); !errors.Is(err, driver.ErrConflict) {
					t.Errorf("optimistic %s, looked: %v: %v, want ErrConflict", when, looked, err)
				}
			})
		}
		atOnce(t, "a duplicate in a caller's transaction "+when, func() {
			other, err := h.begin(ctx, sql.LevelDefault)
			noErr(t, err)
			join, err := h.store.Join(t.Context(), other)
			noErr(t, err)
			res, err := join.Claim(ctx, txClaimOf(testKey))
			decided(t, res, err, driver.DecideInProgress)
			noErr(t, h.effect(ctx, other, "survivor")) // the transaction is alive
			noErr(t, h.commit(ctx, other))
		})
	}
	duplicates("before the record")
	noErr(t, errOf(joined.Complete(ctx, completionOf(&rec, "v"))))
	duplicates("after the record")
	noErr(t, h.commit(ctx, own))
	res, err = h.store.Claim(ctx, claimOf(testKey))
	decided(t, res, err, driver.DecideReplay)
	if n := h.effects(t, "optimistic"); n != 0 {
		t.Errorf("%d effects of transactions that lost", n)
	}
	if n := h.effects(t, "survivor"); n != 2 {
		t.Errorf("%d transactions survived a refused claim, want 2", n)
	}
}

// A rolled back transaction leaves nothing, and its lock is gone with it.
func TestRollbackLeavesNothing(t *testing.T) {
	t.Parallel()
	both(t, setup{}, testRollback[pgx.Tx], testRollback[*sql.Tx])
}

func testRollback[Tx any](t *testing.T, h *handle[Tx]) {
	ctx := t.Context()
	claim := txClaimOf(testKey)
	tx, res, err := h.store.Begin(ctx, driver.BeginRequest{Claim: &claim})
	decided(t, res, err, driver.DecideClaimed)
	noErr(t, h.effect(ctx, tx.Tx(), "charge"))
	noErr(t, tx.Rollback(ctx))
	if n := h.effects(t, "charge"); n != 0 {
		t.Errorf("%d effects", n)
	}
	res, err = h.store.Claim(ctx, claimOf(testKey))
	decided(t, res, err, driver.DecideClaimed)
}

// A guarded attempt that lapsed is taken over by a transaction; if it completes in the meantime, the
// transaction loses.
func TestTakeoverAgainstLateCompletion(t *testing.T) {
	t.Parallel()
	both(t, setup{}, testTakeover[pgx.Tx], testTakeover[*sql.Tx])
}

func testTakeover[Tx any](t *testing.T, h *handle[Tx]) {
	ctx := t.Context()
	for _, late := range []bool{false, true} {
		key := everonce.Key{Scope: "takeover", ID: map[bool]string{false: "silent", true: "late"}[late]}
		res, err := h.store.Claim(ctx, claimOf(key))
		lapsed := decided(t, res, err, driver.DecideClaimed).Record
		mustExec(t, "UPDATE "+h.record()+" SET lease_until = claimed_at WHERE id = $1", lapsed.ID[:])
		claim := txClaimOf(key)
		tx, res, err := h.store.Begin(ctx, driver.BeginRequest{Claim: &claim})
		rec := decided(t, res, err, driver.DecideClaimed).Record
		if rec.Attempt != 2 || rec.Token <= lapsed.Token || rec.Previous.State != driver.StateAbandoned {
			t.Errorf("taken over as attempt %d with a token of %+d from a state %v", rec.Attempt, rec.Token-lapsed.Token, rec.Previous.State)
		}
		noErr(t, h.effect(ctx, tx.Tx(), key.ID))
		if late {
			_, err = h.store.Complete(ctx, completionOf(&lapsed, "late"))
			noErr(t, err)
		}
		done := completionOf(&rec, "transaction")
		_, err = tx.Commit(ctx, driver.CommitRequest{Complete: &done})
		want, effects, value := error(nil), int64(1), "transaction"
		if late {
			want, effects, value = driver.ErrConflict, 0, "late"
		}
		if !errors.Is(err, want) {
			t.Errorf("late: %v: the commit answers %v, want %v", late, err, want)
		}
		if n := h.effects(t, key.ID); n != effects {
			t.Errorf("late: %v: %d effects, want %d", late, n, effects)
		}
		res, err = h.store.Claim(ctx, claimOf(key))
		if decided(t, res, err, driver.DecideReplay); string(res.Record.Result.Data) != value {
			t.Errorf("late: %v: %q stands", late, res.Record.Result.Data)
		}
		if !late {
			_, err = h.store.Complete(ctx, completionOf(&lapsed, "ghost"))
			if !errors.Is(err, driver.ErrLeaseLost) {
				t.Errorf("the attempt that was taken over completes: %v", err)
			}
		}
	}
}

// A step's commit checks the parent: one that was taken over rolls the step's effect back.
func TestStepCommitChecksTheParent(t *testing.T) {
	t.Parallel()
	both(t, setup{}, testStepCommit[pgx.Tx], testStepCommit[*sql.Tx])
}

func testStepCommit[Tx any](t *testing.T, h *handle[Tx]) {
	ctx := t.Context()
	res, err := h.store.Claim(ctx, claimOf(testKey))
	rec := decided(t, res, err, driver.DecideClaimed).Record
	step := driver.SaveStepRequest{
		ID: rec.ID, Token: rec.Token, Nonce: rec.Nonce, Lease: time.Hour, Lifetime: everonce.ForWeb(),
		Step: driver.StepRecord{Name: "charge", State: driver.StepDone, Attempt: 1, Result: driver.SavedResult{Kind: driver.ResultValue, Codec: "raw", Data: []byte("r")}},
	}
	commit := func(step driver.SaveStepRequest) error {
		tx, _, err := h.store.Begin(ctx, driver.BeginRequest{})
		noErr(t, err)
		noErr(t, h.effect(ctx, tx.Tx(), "charge"))
		return errOf(tx.Commit(ctx, driver.CommitRequest{SaveStep: &step}))
	}
	noErr(t, commit(step))
	got, err := h.store.Get(ctx, driver.GetRequest{ID: rec.ID})
	noErr(t, err)
	saved, ok := got.Record.Step("charge")
	if !ok || saved.State != driver.StepDone || string(saved.Result.Data) != "r" {
		t.Errorf("the step is %+v, %v", saved, ok)
	}
	if left := got.Record.LeaseUntil.Sub(got.Now); left < 50*time.Minute {
		t.Errorf("the lease was not renewed: %v are left", left)
	}
	stale := step
	stale.Step.Name = "other"
	stale.Token--
	if err := commit(stale); !errors.Is(err, driver.ErrLeaseLost) {
		t.Errorf("a step of a lost attempt commits with %v", err)
	}
	if n := h.effects(t, "charge"); n != 1 {
		t.Errorf("%d effects, want 1", n)
	}
	known := step
	known.Step = driver.StepRecord{Name: "known", State: driver.StepOpen, Attempt: 1}
	_, err = h.store.SaveStep(ctx, known)
	noErr(t, err)
	for i := range driver.MaxSteps - 2 {
		mustExec(t, "INSERT INTO "+h.schema+".everonce_step (id, name, seq, began_at, attempt, state) VALUES ($1, $2, $3, 1, 1, 1)", rec.ID[:], "s"+string(rune('a'+i%26))+strings.Repeat("x", i/26), i)
	}
	mustExec(t, "UPDATE "+h.record()+" SET steps = $2 WHERE id = $1", rec.ID[:], driver.MaxSteps)
	if err := commit(driver.SaveStepRequest{ID: rec.ID, Token: rec.Token, Nonce: rec.Nonce, Step: driver.StepRecord{Name: "one too many", State: driver.StepDone, Attempt: 1}}); !errors.Is(err, driver.ErrTooLarge) {
		t.Errorf("a step too many commits with %v", err)
	}
	known.Step.State = driver.StepDone
	if err := commit(known); err != nil {
		t.Errorf("a known step of a full record: %v", err)
	}
}

// The isolation levels above read committed show a conflict as a serialization failure, which says that
// the whole transaction may be run again.
func TestSerializationFailuresSurface(t *testing.T) {
	t.Parallel()
	for _, level := range []sql.IsolationLevel{sql.LevelRepeatableRead, sql.LevelSerializable} {
		t.Run(level.String(), func(t *testing.T) {
			t.Parallel()
			both(t, setup{opts: pgxstore.Options{Isolation: level}},
				func(t *testing.T, h *handle[pgx.Tx]) { testSerialization(t, h, level) },
				func(t *testing.T, h *handle[*sql.Tx]) { testSerialization(t, h, level) })
		})
	}
}

func testSerialization[Tx any](t *testing.T, h *handle[Tx], level sql.IsolationLevel) {
	ctx := t.Context()
	// The caller's transaction has its snapshot before another one commits the key.
	own, err := h.begin(ctx, level)
	noErr(t, err)
	noErr(t, h.exec(ctx, own, "SELECT count(*) FROM "+h.record()))
	complete := func(key everonce.Key) {
		t.Helper()
		claim := txClaimOf(key)
		tx, res, err := h.store.Begin(ctx, driver.BeginRequest{Claim: &claim})
		rec := decided(t, res, err, driver.DecideClaimed).Record
		done := completionOf(&rec, "first")
		noErr(t, errOf(tx.Commit(ctx, driver.CommitRequest{Complete: &done})))
	}
	complete(testKey)
	joined, err := h.store.Join(t.Context(), own)
	noErr(t, err)
	res, err := joined.Claim(ctx, txClaimOf(testKey)) // its snapshot shows no record
	rec := decided(t, res, err, driver.DecideClaimed).Record
	_, err = joined.Complete(ctx, completionOf(&rec, "second"))
	if class := h.store.ClassifyTx(err); class != driver.TxErrorRetry {
		t.Errorf("the completion answers %v, which has class %d, want TxErrorRetry", err, class)
	}
	noErr(t, h.abort(ctx, own))

	// The store's own transaction, which only looks before the other commits.
	key := everonce.Key{Scope: "serial", ID: "optimistic"}
	tx, _, err := h.store.Begin(ctx, driver.BeginRequest{})
	noErr(t, err)
	if got, err := tx.Get(ctx, driver.GetRequest{ID: key.RecordID()}); err != nil || got.Found {
		t.Fatalf("found %v, %v", got.Found, err)
	}
	complete(key)
	claim := txClaimOf(key)
	done := completionOf(&driver.Record{ID: claim.ID, Nonce: claim.Nonce}, "second")
	_, err = tx.Commit(ctx, driver.CommitRequest{Record: &claim, Complete: &done})
	if class := h.store.ClassifyTx(err); class != driver.TxErrorRetry && !errors.Is(err, driver.ErrConflict) {
		t.Errorf("the commit answers %v, which has class %d, want TxErrorRetry or ErrConflict", err, class)
	}
}

// A transaction that takes too long is rolled back, and every method says why.
func TestTransactionTimeout(t *testing.T) {
	t.Parallel()
	both(t, setup{}, testTimeout[pgx.Tx], testTimeout[*sql.Tx])
}

func testTimeout[Tx any](t *testing.T, h *handle[Tx]) {
	ctx := t.Context()
	claim := txClaimOf(testKey)
	tx, res, err := h.store.Begin(ctx, driver.BeginRequest{Claim: &claim, Timeout: time.Second})
	rec := decided(t, res, err, driver.DecideClaimed).Record
	noErr(t, h.effect(ctx, tx.Tx(), "charge"))
	statement := ctx
	if !h.pipes { // database/sql lets a statement run that has its own context; the engine's ends with the transaction
		bounded, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		statement = bounded
	}
	atOnce(t, "a statement at the timeout", func() {
		if err := h.exec(statement, tx.Tx(), "SELECT pg_sleep(60)"); err == nil {
			t.Error("a statement outlived its transaction")
		}
	})
	if _, err := tx.Get(ctx, driver.GetRequest{ID: claim.ID}); !errors.Is(err, driver.ErrTxTooLong) {
		t.Errorf("Get says %v", err)
	}
	done := completionOf(&rec, "v")
	if _, err := tx.Commit(ctx, driver.CommitRequest{Complete: &done}); !errors.Is(err, driver.ErrTxTooLong) {
		t.Errorf("Commit says %v", err)
	}
	noErr(t, tx.Rollback(ctx))
	if n := h.effects(t, "charge"); n != 0 {
		t.Errorf("%d effects", n)
	}
}

// The transaction does not end with the context that it was begun under.
func TestTransactionOutlivesItsBeginning(t *testing.T) {
	t.Parallel()
	both(t, setup{}, testOutlives[pgx.Tx], testOutlives[*sql.Tx])
}

func testOutlives[Tx any](t *testing.T, h *handle[Tx]) {
	ctx, cancel := context.WithCancel(t.Context())
	claim := txClaimOf(testKey)
	tx, res, err := h.store.Begin(ctx, driver.BeginRequest{Claim: &claim})
	rec := decided(t, res, err, driver.DecideClaimed).Record
	noErr(t, h.effect(ctx, tx.Tx(), "charge"))
	cancel()
	done := completionOf(&rec, "v")
	noErr(t, errOf(tx.Commit(t.Context(), driver.CommitRequest{Complete: &done})))
	if n := h.effects(t, "charge"); n != 1 {
		t.Errorf("%d effects", n)
	}
	if _, _, err := h.store.Begin(ctx, driver.BeginRequest{}); !errors.Is(err, context.Canceled) {
		t.Errorf("Begin under a context that is over: %v", err)
	}
}

// The work cannot end the transaction that it is given.
func TestWorkCanNotEndTheTransaction(t *testing.T) {
	t.Parallel()
	t.Run("pgx", func(t *testing.T) {
		t.Parallel()
		h, ctx := newPgx(t, setup{}), t.Context()
		claim := txClaimOf(testKey)
		handle, res, err := h.store.Begin(ctx, driver.BeginRequest{Claim: &claim})
		rec := decided(t, res, err, driver.DecideClaimed).Record
		tx := handle.Tx()
		if err := tx.Commit(ctx); err == nil {
			t.Error("the work committed")
		}
		if err := tx.Rollback(ctx); err == nil {
			t.Error("the work rolled back")
		}
		inner, err := tx.Begin(ctx) // a savepoint is its own
		noErr(t, err)
		noErr(t, h.effect(ctx, inner, "undone"))
		noErr(t, inner.Rollback(ctx))
		inner, err = tx.Begin(ctx)
		noErr(t, err)
		noErr(t, h.effect(ctx, inner, "done"))
		noErr(t, inner.Commit(ctx))
		left, err := tx.Begin(ctx) // and its savepoints end with it
		noErr(t, err)
		deeper, err := left.Begin(ctx)
		noErr(t, err)
		done := completionOf(&rec, "v")
		noErr(t, errOf(handle.Commit(ctx, driver.CommitRequest{Complete: &done})))
		if h.effects(t, "done") != 1 || h.effects(t, "undone") != 0 {
			t.Errorf("%d and %d effects, want 1 and 0", h.effects(t, "done"), h.effects(t, "undone"))
		}
		for what, tx := range map[string]pgx.Tx{"the transaction": tx, "a savepoint": left, "a savepoint in it": deeper} {
			for name, err := range afterwards(ctx, tx) {
				if !errors.Is(err, pgx.ErrTxClosed) {
					t.Errorf("%s: %s after the end: %v", what, name, err)
				}
			}
			if tx.Conn() != nil || tx.LargeObjects() != (pgx.LargeObjects{}) { // the connection serves others
				t.Errorf("%s: the connection is to be had after the end", what)
			}
		}
	})
	t.Run("sql", func(t *testing.T) {
		t.Parallel()
		h, ctx := newSQL(t, setup{}), t.Context()
		claim := txClaimOf(testKey)
		handle, res, err := h.store.Begin(ctx, driver.BeginRequest{Claim: &claim})
		rec := decided(t, res, err, driver.DecideClaimed).Record
		noErr(t, handle.Tx().Commit()) // nothing keeps it from doing so
		done := completionOf(&rec, "v")
		_, err = handle.Commit(ctx, driver.CommitRequest{Complete: &done})
		if err == nil || h.store.ClassifyTx(err) != driver.TxErrorOther {
			t.Errorf("the commit of an ended transaction answers %v, of class %d", err, h.store.ClassifyTx(err))
		}
	})
}

// afterwards uses every method of a transaction.
func afterwards(ctx context.Context, tx pgx.Tx) map[string]error {
	var n int
	errs := map[string]error{
		"Commit":   tx.Commit(ctx),
		"Rollback": tx.Rollback(ctx),
		"QueryRow": tx.QueryRow(ctx, "SELECT 1").Scan(&n),
	}
	_, errs["Exec"] = tx.Exec(ctx, "SELECT 1")
	_, errs["Query"] = tx.Query(ctx, "SELECT 1")
	_, errs["Prepare"] = tx.Prepare(ctx, "", "SELECT 1")
	_, errs["Begin"] = tx.Begin(ctx)
	_, errs["CopyFrom"] = tx.CopyFrom(ctx, pgx.Identifier{"x"}, nil, pgx.CopyFromRows(nil))
	var b pgx.Batch
	b.Queue("SELECT 1")
	errs["SendBatch"] = tx.SendBatch(ctx, &b).Close()
	return errs
}

// A check that the application deferred until the commit fails there. The error says so, nothing is committed, and the
// store does not take it for another attempt's record, though its code is the same.
func TestCommitThatTheDatabaseRefuses(t *testing.T) {
	t.Parallel()
	both(t, setup{}, testRefusedCommit[pgx.Tx], testRefusedCommit[*sql.Tx])
}

func testRefusedCommit[Tx any](t *testing.T, h *handle[Tx]) {
	ctx := t.Context()
	table := func(name, columns string) { mustExec(t, "CREATE TABLE "+h.schema+"."+name+" ("+columns+")") }
	table("child", "name text REFERENCES "+h.schema+".effect (name) DEFERRABLE INITIALLY DEFERRED")
	table("twice", "name text UNIQUE DEFERRABLE INITIALLY DEFERRED")
	table("raising", "name text")
	mustExec(t, "CREATE FUNCTION "+h.schema+".raising() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'of the application' USING ERRCODE = '22P02'; END $$")
	mustExec(t, "CREATE CONSTRAINT TRIGGER raising AFTER INSERT ON "+h.schema+".raising DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION "+h.schema+".raising()")
	for code, insert := range map[string]string{"23503": "child VALUES ('orphan')", "23505": "twice VALUES ('a'), ('a')", "22P02": "raising VALUES ('a')"} {
		claim := txClaimOf(everonce.Key{Scope: "refused", ID: code})
		tx, res, err := h.store.Begin(ctx, driver.BeginRequest{Claim: &claim})
		rec := decided(t, res, err, driver.DecideClaimed).Record
		noErr(t, h.exec(ctx, tx.Tx(), "INSERT INTO "+h.schema+"."+insert))
		done := completionOf(&rec, "v")
		_, err = tx.Commit(ctx, driver.CommitRequest{Complete: &done})
		pgErr, ok := errors.AsType[*pgconn.PgError](err)
		if !ok || pgErr.Code != code || h.store.ClassifyTx(err) != driver.TxErrorOther {
			t.Errorf("%s: the commit answers %v, of class %d", code, err, h.store.ClassifyTx(err))
		}
		res, err = h.store.Claim(ctx, claimOf(everonce.Key{Scope: "refused", ID: code}))
		decided(t, res, err, driver.DecideClaimed)
	}
}
