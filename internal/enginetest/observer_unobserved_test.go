package enginetest

import (
	"context"
	"testing"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/store/memstore"
)

// A record that an adapter keeps beside an operation's is no effect: an observer that counts effects does not see
// it.
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

// The same in transactions: everonce's own, one of many operations, and the caller's.
func TestUnobservedTransactionsAreNotObserved(t *testing.T) {
	one := func(context.Context, *mapTx) (string, error) { return "v", nil }
	for name, call := range map[string]func(x *everonce.TxReceiver[*mapTx], opts ...everonce.CallOption) error{
		"Transact": func(x *everonce.TxReceiver[*mapTx], opts ...everonce.CallOption) error {
			_, err := everonce.Transact(t.Context(), x, keyOf("x"), one, opts...)
			return err
		},
		"TransactBatch": func(x *everonce.TxReceiver[*mapTx], opts ...everonce.CallOption) error {
			_, err := everonce.TransactBatch(t.Context(), x, items("x"), everonce.EachItem(func(ctx context.Context, tx *mapTx, _ int) (string, error) { return one(ctx, tx) }), opts...)
			return err
		},
		"DoTx": func(x *everonce.TxReceiver[*mapTx], opts ...everonce.CallOption) error {
			return x.InTx(t.Context(), func(ctx context.Context, tx *mapTx) error {
				_, err := everonce.DoTx(ctx, tx, x, keyOf("x"), func(ctx context.Context) (string, error) { return one(ctx, tx) }, opts...)
				return err
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			rec := &recorder{}
			x := newTxReceiver(t, newMapStore(), &everonce.Options{Observer: rec})
			checkErr(t, x.Ready(t.Context()), nil)
			checkErr(t, call(x, everonce.Unobserved()), nil)
			checkErr(t, call(x), nil)
			checkEqual(t, "Outcome", rec.only(t).Outcome, everonce.Replayed)
		})
	}
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
