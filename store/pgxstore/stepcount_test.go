package pgxstore_test

import (
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/driver"
)

// A step whose call is repeated while the first is still on its way is one step: what is counted twice does not keep an
// operation from the steps that it may have.
func TestAStepThatIsSentTwiceIsOneStep(t *testing.T) {
	t.Parallel()
	both(t, setup{conns: 4}, testStepSentTwice[pgx.Tx], testStepSentTwice[*sql.Tx])
}

func testStepSentTwice[Tx any](t *testing.T, h *handle[Tx]) {
	ctx := t.Context()
	res, err := h.store.Claim(ctx, claimOf(testKey))
	rec := decided(t, res, err, driver.DecideClaimed).Record
	stepOf := func(name string) driver.SaveStepRequest {
		return driver.SaveStepRequest{ID: rec.ID, Token: rec.Token, Nonce: rec.Nonce, Step: driver.StepRecord{Name: name, State: driver.StepDone, Attempt: 1, Result: driver.SavedResult{Kind: driver.ResultElided}}}
	}
	const sent = 3
	heldUp(t, h, rec.ID, sent, func(int64) {
		if _, err := h.store.SaveStep(ctx, stepOf("mail")); err != nil {
			t.Errorf("a repeated call: %v", err)
		}
	})
	moreSteps(t, h, rec.ID, driver.MaxSteps-3)
	if _, err := h.store.SaveStep(ctx, stepOf("one more")); err != nil {
		t.Errorf("step %d of %d: %v", driver.MaxSteps-1, driver.MaxSteps, err)
	}
	tx, _, err := h.store.Begin(ctx, driver.BeginRequest{})
	noErr(t, err)
	last := stepOf("the last")
	if _, err := tx.Commit(ctx, driver.CommitRequest{SaveStep: &last}); err != nil {
		t.Errorf("step %d of %d, in a transaction: %v", driver.MaxSteps, driver.MaxSteps, err)
	}
	for _, name := range []string{"mail", "the last"} {
		if _, err := h.store.SaveStep(ctx, stepOf(name)); err != nil {
			t.Errorf("a step of a full record, repeated: %v", err)
		}
	}
	if _, err := h.store.SaveStep(ctx, stepOf("too many")); !errors.Is(err, driver.ErrTooLarge) {
		t.Errorf("step %d of %d: %v, want ErrTooLarge", driver.MaxSteps+1, driver.MaxSteps, err)
	}
	got, err := h.store.Get(ctx, driver.GetRequest{ID: rec.ID})
	noErr(t, err)
	if n := len(got.Record.Steps); n != driver.MaxSteps {
		t.Errorf("the record has %d steps, want %d", n, driver.MaxSteps)
	}
}

// Steps that begin at the same time are no more than an operation may have, and as many as it may: also where its
// count of them is too high.
func TestStepsAtOnceKeepTheLimit(t *testing.T) {
	t.Parallel()
	both(t, setup{conns: 4}, testStepsAtOnce[pgx.Tx], testStepsAtOnce[*sql.Tx])
}

func testStepsAtOnce[Tx any](t *testing.T, h *handle[Tx]) {
	ctx := t.Context()
	for _, room := range []int64{1, 2} {
		for _, tooHigh := range []int64{0, 1, 5} {
			key := everonce.Key{Scope: "at once", ID: fmt.Sprint(room, tooHigh)}
			res, err := h.store.Claim(ctx, claimOf(key))
			rec := decided(t, res, err, driver.DecideClaimed).Record
			moreSteps(t, h, rec.ID, driver.MaxSteps-room)
			mustExec(t, "UPDATE "+h.record()+" SET steps = steps + $2 WHERE id = $1", rec.ID[:], tooHigh)
			var saved atomic.Int64
			heldUp(t, h, rec.ID, 3, func(n int64) {
				step := driver.SaveStepRequest{
					ID: rec.ID, Token: rec.Token, Nonce: rec.Nonce,
					Step: driver.StepRecord{Name: fmt.Sprint("new", n), State: driver.StepDone, Attempt: 1, Result: driver.SavedResult{Kind: driver.ResultElided}},
				}
				switch err := save(t, h, step, n == 0); {
				case err == nil:
					saved.Add(1)
				case !errors.Is(err, driver.ErrTooLarge):
					t.Errorf("%s: %v", key.ID, err)
				}
			})
			if n := saved.Load(); n != room {
				t.Errorf("%s: %d steps were saved, with room for %d", key.ID, n, room)
			}
			got, err := h.store.Get(ctx, driver.GetRequest{ID: rec.ID})
			noErr(t, err)
			if n := len(got.Record.Steps); n != driver.MaxSteps {
				t.Errorf("%s: the record has %d steps, want %d", key.ID, n, driver.MaxSteps)
			}
		}
	}
}

// save writes a step, alone or with a commit, which is made again where the store says that it may be.
func save[Tx any](t *testing.T, h *handle[Tx], step driver.SaveStepRequest, inTx bool) error {
	for inTx {
		tx, _, err := h.store.Begin(t.Context(), driver.BeginRequest{})
		if err != nil {
			return err
		}
		_, err = tx.Commit(t.Context(), driver.CommitRequest{SaveStep: &step})
		if h.store.ClassifyTx(err) != driver.TxErrorRetry {
			return err
		}
	}
	_, err := h.store.SaveStep(t.Context(), step)
	return err
}

// heldUp makes calls that all wait for the record, which somebody else has locked, before the first one goes on.
func heldUp[Tx any](t *testing.T, h *handle[Tx], id driver.RecordID, calls int64, call func(n int64)) {
	t.Helper()
	other, err := admin(t).Begin(t.Context())
	noErr(t, err)
	defer other.Rollback(t.Context()) //nolint:errcheck // it only holds a lock
	_, err = other.Exec(t.Context(), "SELECT FROM "+h.record()+" WHERE id = $1 FOR UPDATE", id[:])
	noErr(t, err)
	var all sync.WaitGroup
	for n := range calls {
		all.Go(func() { call(n) })
	}
	for number(t, `SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%'||$1||'"."everonce_step"%'`, h.schema) < calls {
		if t.Failed() {
			t.FailNow()
		}
	}
	noErr(t, other.Rollback(t.Context()))
	all.Wait()
}

// moreSteps gives a record as many steps, behind the store's back.
func moreSteps[Tx any](t *testing.T, h *handle[Tx], id driver.RecordID, n int64) {
	t.Helper()
	mustExec(t, "INSERT INTO "+h.schema+".everonce_step (id, name, seq, began_at, attempt, state) SELECT $1, 's' || n, n, 1, 1, 2 FROM generate_series(1, $2::int) AS n", id[:], n)
	mustExec(t, "UPDATE "+h.record()+" SET steps = steps + $2::int WHERE id = $1", id[:], n)
}
