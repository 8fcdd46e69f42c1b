package pgxstore_test

import (
	"database/sql"
	"errors"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/everonce/everonce"
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
	rec := decided(t, res, err, everonce.DecideClaimed).Record
	stepOf := func(name string) everonce.SaveStepRequest {
		return everonce.SaveStepRequest{ID: rec.ID, Token: rec.Token, Nonce: rec.Nonce, Step: everonce.StepRecord{Name: name, State: everonce.StepDone, Attempt: 1}}
	}
	const sent = 3
	other, err := admin(t).Begin(ctx) // holds up the first call until the others have come
	noErr(t, err)
	defer other.Rollback(ctx) //nolint:errcheck // it only holds a lock
	_, err = other.Exec(ctx, "SELECT FROM "+h.record()+" WHERE id = $1 FOR UPDATE", rec.ID[:])
	noErr(t, err)
	var calls sync.WaitGroup
	for range sent {
		calls.Go(func() {
			if _, err := h.store.SaveStep(ctx, stepOf("mail")); err != nil {
				t.Errorf("a repeated call: %v", err)
			}
		})
	}
	for number(t, `SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%'||$1||'"."everonce_step"%'`, h.schema) < sent {
		if t.Failed() {
			t.FailNow()
		}
	}
	noErr(t, other.Rollback(ctx))
	calls.Wait()

	mustExec(t, "INSERT INTO "+h.schema+".everonce_step (id, name, seq, began_at, attempt, state) SELECT $1, 's' || n, n, 1, 1, 2 FROM generate_series(1, $2::int) AS n", rec.ID[:], everonce.MaxSteps-3)
	mustExec(t, "UPDATE "+h.record()+" SET steps = steps + $2::int WHERE id = $1", rec.ID[:], everonce.MaxSteps-3)
	if _, err := h.store.SaveStep(ctx, stepOf("one more")); err != nil {
		t.Errorf("step %d of %d: %v", everonce.MaxSteps-1, everonce.MaxSteps, err)
	}
	tx, _, err := h.store.Begin(ctx, everonce.BeginRequest{})
	noErr(t, err)
	last := stepOf("the last")
	if err := tx.Commit(ctx, everonce.CommitRequest{SaveStep: &last}); err != nil {
		t.Errorf("step %d of %d, in a transaction: %v", everonce.MaxSteps, everonce.MaxSteps, err)
	}
	for _, name := range []string{"mail", "the last"} {
		if _, err := h.store.SaveStep(ctx, stepOf(name)); err != nil {
			t.Errorf("a step of a full record, repeated: %v", err)
		}
	}
	if _, err := h.store.SaveStep(ctx, stepOf("too many")); !errors.Is(err, everonce.ErrTooLarge) {
		t.Errorf("step %d of %d: %v, want ErrTooLarge", everonce.MaxSteps+1, everonce.MaxSteps, err)
	}
	got, err := h.store.Get(ctx, everonce.GetRequest{ID: rec.ID})
	noErr(t, err)
	if n := len(got.Record.Steps); n != everonce.MaxSteps {
		t.Errorf("the record has %d steps, want %d", n, everonce.MaxSteps)
	}
}
