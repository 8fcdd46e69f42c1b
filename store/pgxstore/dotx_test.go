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

// A permanent failure in the caller's transaction is recorded over what is gone by time too, with the steps that it had.
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
