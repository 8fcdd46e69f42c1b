package pgxstore_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/driver"
)

// A permanent failure in the caller's transaction is recorded over what is gone by time too, with the steps that it
// had.
func TestDoTxRejectsOverWhatIsGone(t *testing.T) {
	t.Parallel()
	both(t, setup{}, testDoTxOverGone[pgx.Tx], testDoTxOverGone[*sql.Tx])
}

func testDoTxOverGone[Tx any](t *testing.T, h *handle[Tx]) {
	ctx := t.Context()
	receiver, err := everonce.NewTxReceiver(h.store, nil)
	noErr(t, err)
	for what, steps := range map[string]int{"without steps": 0, "with a step": 1} {
		key := everonce.Key{Scope: "gone", ID: what}
		req := claimOf(key)
		req.ExpireUnsettled = true
		res, err := h.store.Claim(ctx, req)
		rec := decided(t, res, err, driver.DecideClaimed).Record
		for range steps {
			_, err = h.store.SaveStep(ctx, driver.SaveStepRequest{ID: rec.ID, Token: rec.Token, Nonce: rec.Nonce, Step: driver.StepRecord{Name: "mail", State: driver.StepOpen, Attempt: 1}})
			noErr(t, err)
		}
		mustExec(t, "UPDATE "+h.record()+" SET lease_until = 1, purge_at = 1, due_at = 1 WHERE id = $1", rec.ID[:])
		tx, err := h.begin(ctx, sql.LevelDefault)
		noErr(t, err)
		out, err := everonce.DoTx(ctx, tx, receiver, key, func(context.Context) (string, error) {
			return "", everonce.Permanent("refused", errors.New("no"), nil)
		})
		if out.Outcome != everonce.Rejected {
			t.Errorf("%s: %v, %v", what, out.Outcome, err)
		}
		noErr(t, h.commit(ctx, tx))
		got, err := h.store.Get(ctx, driver.GetRequest{ID: rec.ID})
		noErr(t, err)
		if r := got.Record; r.State != driver.StateCompleted || r.Result.Kind != driver.ResultFailure || r.Attempt != 1 || r.Token <= rec.Token || len(r.Steps) != 0 {
			t.Errorf("%s: the record is %v with %v, attempt %d with %d steps", what, r.State, r.Result.Kind, r.Attempt, len(r.Steps))
		}
		if n := number(t, "SELECT count(*) FROM "+h.schema+".everonce_step WHERE id = $1", rec.ID[:]); n != 0 {
			t.Errorf("%s: %d steps of the operation before are left", what, n)
		}
	}
}

// A savepoint of the work's own around a DoTx on the outer handle can be rolled back or released, and the work goes on:
// what DoTx keeps back for the next statement is sent before the savepoint ends.
func TestDoTxInsideASavepoint(t *testing.T) {
	t.Parallel()
	h := newPgx(t, setup{})
	ctx := t.Context()
	receiver, err := everonce.NewTxReceiver(h.store, nil)
	noErr(t, err)
	for name, end := range map[string]func(pgx.Tx) error{
		"Commit":   func(inner pgx.Tx) error { return inner.Commit(ctx) },
		"Rollback": func(inner pgx.Tx) error { return inner.Rollback(ctx) },
	} {
		err := receiver.InTx(ctx, func(ctx context.Context, tx pgx.Tx) error {
			inner, err := tx.Begin(ctx)
			if err != nil {
				return err
			}
			_, err = everonce.DoTx(ctx, tx, receiver, everonce.Key{Scope: "savepoint", ID: name}, func(ctx context.Context) (string, error) {
				return "", h.effect(ctx, tx, name+" inside")
			})
			return errors.Join(err, end(inner), h.effect(ctx, tx, name+" after"))
		})
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if inside, after := h.effects(t, name+" inside"), h.effects(t, name+" after"); (inside == 1) != (name == "Commit") || after != 1 {
			t.Errorf("%s: %d effects inside of the savepoint, and %d after it", name, inside, after)
		}
	}
}
