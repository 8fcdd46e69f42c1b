package everonce_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/store/memstore"
)

// The bank booked the charge, and its answer was lost. The next delivery asks the bank before it charges
// again.
func ExampleWithReconcile() {
	ctx := context.Background()
	r, err := everonce.NewReceiver(memstore.New(nil), everonce.Reconcile, nil)
	if err != nil {
		panic(err)
	}

	bank := map[string]string{} // receipts by the key that the bank was given
	charge := func(_ context.Context, a *everonce.Attempt) (string, error) {
		bank[a.DownstreamKey("charge")] = "receipt-1"
		return "", errors.New("timeout")
	}
	ask := func(_ context.Context, a everonce.Abandoned) (everonce.Verdict[string], error) {
		receipt, booked := bank[a.Downstream("charge")]
		if !booked {
			return everonce.NotHappened[string](), nil // the bank would recognise the old call, should it arrive late
		}
		return everonce.Happened(receipt), nil
	}

	key := everonce.Key{Scope: "charges", ID: "order-7"}
	for range 2 {
		res, err := everonce.Do(ctx, r, key, charge, everonce.WithReconcile(ask))
		fmt.Println(res.Outcome, res.Value, "reconciled:", res.Reconciled, "unknown:", errors.Is(err, everonce.ErrOutcomeUnknown))
	}
	// Output:
	// unknown  reconciled: false unknown: true
	// executed receipt-1 reconciled: true unknown: false
}
