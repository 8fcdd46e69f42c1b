package everonce_test

import (
	"context"
	"testing"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/store/memstore"
)

// What an adapter keeps beside an operation's record is no effect: an observer that counts effects does not
// hear of it.
func TestUnobservedCallsAreNotObserved(t *testing.T) {
	rec := &recorder{}
	r := newReceiver(t, memstore.New(nil), everonce.Refuse, &everonce.Options{Observer: rec})
	piece := func(ctx context.Context) {
		for _, want := range []everonce.Outcome{everonce.Executed, everonce.Replayed} {
			res, err := everonce.Do(ctx, r, keyOf("x/piece"), func(context.Context, *everonce.Attempt) (string, error) { return "a part", nil }, everonce.Unobserved())
			checkErr(t, err, nil)
			checkEqual(t, "Outcome", res.Outcome, want)
		}
	}
	_, err := everonce.Do(context.Background(), r, keyOf("x"), func(ctx context.Context, _ *everonce.Attempt) (string, error) {
		piece(ctx)
		return "the whole", nil
	})
	checkErr(t, err, nil)
	checkEqual(t, "Outcome", rec.only(t).Outcome, everonce.Executed)
}

// The same in the caller's transaction.
func TestUnobservedDoTxIsNotObserved(t *testing.T) {
	rec := &recorder{}
	s := newMapStore()
	r, err := everonce.NewTxReceiver(s, &everonce.Options{Observer: rec})
	checkErr(t, err, nil)
	checkErr(t, r.Ready(context.Background()), nil)
	err = r.InTx(context.Background(), func(ctx context.Context, tx *mapTx) error {
		for _, opts := range [][]everonce.CallOption{{everonce.Unobserved()}, nil} {
			if _, err := everonce.DoTx(ctx, tx, r, keyOf("x"), func(context.Context) (string, error) { return "v", nil }, opts...); err != nil {
				return err
			}
		}
		return nil
	})
	checkErr(t, err, nil)
	checkEqual(t, "Outcome", rec.only(t).Outcome, everonce.Replayed)
}

// A receiver tells its limits, and not its secret.
func TestReceiverOptions(t *testing.T) {
	given := everonce.Options{MaxResult: 77, IdentitySecret: []byte("sixteen bytes and more")}
	r := newReceiver(t, memstore.New(nil), everonce.Refuse, &given)
	o := r.Options()
	checkEqual(t, "MaxResult", o.MaxResult, 77)
	checkEqual(t, "Lifetime", o.Lifetime, everonce.ForWeb())
	checkEqual(t, "IdentitySecret", len(o.IdentitySecret), 0)
	checkEqual(t, "the given secret", len(given.IdentitySecret), 22)
	tx, err := everonce.NewTxReceiver(newMapStore(), &given)
	checkErr(t, err, nil)
	checkEqual(t, "MaxResult of the other", tx.Options().MaxResult, 77)
}
