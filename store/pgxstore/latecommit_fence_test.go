package pgxstore_test

import (
	"context"
	"database/sql"
	"testing"

	"github.com/everonce/everonce"
)

// TestALateCommitOfAFailedStepTakesNoEffect: the first commit of a step is lost, its repetition fails, and the
// work does something else instead. The first commit arrives after that.
func TestALateCommitOfAFailedStepTakesNoEffect(t *testing.T) {
	t.Run("pgx", func(t *testing.T) { testLateCommitOfAFailedStep(t, newPgx(t, setup{})) })
	t.Run("sql", func(t *testing.T) { testLateCommitOfAFailedStep[*sql.Tx](t, newSQL(t, setup{})) })
}

func testLateCommitOfAFailedStep[Tx any](t *testing.T, h *handle[Tx]) {
	s := &lateStore[Tx]{TxStore: h.store}
	r, err := everonce.NewReceiver(s, everonce.Refuse, &everonce.Options{EffectsInSteps: true})
	noErr(t, err)
	x, err := everonce.NewTxReceiver[Tx](s, nil)
	noErr(t, err)
	runs := 0
	_, err = everonce.Do(t.Context(), r, testKey, func(ctx context.Context, a *everonce.Attempt) (int, error) {
		_, err := everonce.StepTx(ctx, a, x, "charge", func(ctx context.Context, tx Tx) (int, error) {
			if runs++; runs == 2 {
				return 0, everonce.NotDone(context.DeadlineExceeded)
			}
			return runs, h.insert(ctx, tx, "charge")
		})
		if err == nil {
			t.Error("the step that failed is told to be done")
		}
		_, err = everonce.StepTx(ctx, a, x, "other", func(ctx context.Context, tx Tx) (int, error) { return 1, h.insert(ctx, tx, "instead") })
		if late := s.arrive(); late == nil {
			t.Error("the late commit took effect")
		}
		return 1, err
	})
	noErr(t, err)
	if charge, instead := h.inserted(t, "charge"), h.inserted(t, "instead"); charge != 0 || instead != 1 {
		t.Errorf("%d charges, %d instead, want 0 and 1", charge, instead)
	}
}
