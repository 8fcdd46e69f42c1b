package everonce_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/store/memstore"
)

// The receiver never repeats an operation whose outcome is unknown. One partner deduplicates by the key that it
// gets: calls to it may run again.
func ExampleWithPolicy() {
	ctx := context.Background()
	r, err := everonce.NewReceiver(memstore.New(nil), everonce.Refuse, nil)
	if err != nil {
		panic(err)
	}

	arrived := map[string]bool{} // the partner's memory
	ship := func(_ context.Context, a *everonce.Attempt) (string, error) {
		arrived[a.DownstreamKey("ship")] = true
		if a.Number() == 1 {
			return "", errors.New("timeout")
		}
		return "on its way", nil
	}
	key := everonce.Key{Scope: "shipments", ID: "order-7"}
	for range 2 {
		res, err := everonce.Do(ctx, r, key, ship, everonce.WithPolicy(everonce.Reexecute))
		fmt.Println(res.Outcome, res.Value, err)
	}
	fmt.Println("shipped:", len(arrived))
	// Output:
	// failed  timeout
	// executed on its way <nil>
	// shipped: 1
}

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

// Under Refuse an operation with an unknown outcome waits until it is settled.
func ExampleReceiver_Settle() {
	ctx := context.Background()
	r, err := everonce.NewReceiver(memstore.New(nil), everonce.Refuse, nil)
	if err != nil {
		panic(err)
	}

	charge := func(context.Context, *everonce.Attempt) (string, error) {
		return "", errors.New("timeout")
	}
	key := everonce.Key{Scope: "charges", ID: "order-7"}
	res, _ := everonce.Do(ctx, r, key, charge)
	fmt.Println(res.Outcome)

	// Anna has called the bank: it was booked.
	err = r.Settle(ctx, key, everonce.Settlement{Verdict: everonce.SettleDone, Value: "receipt-1", By: "anna"})
	if err != nil {
		panic(err)
	}
	res, err = everonce.Do(ctx, r, key, charge)
	fmt.Println(res.Outcome, res.Value, err)

	// A second settlement fails.
	err = r.Settle(ctx, key, everonce.Settlement{Verdict: everonce.SettleNotDone, By: "bob"})
	fmt.Println(errors.Is(err, everonce.ErrNotUnknown))
	// Output:
	// unknown
	// replayed receipt-1 <nil>
	// true
}

// An operator's tool has the store, and the record's ID from a log line or a list.
func ExampleSettle() {
	ctx := context.Background()
	store := memstore.New(nil)
	r, err := everonce.NewReceiver(store, everonce.Refuse, nil)
	if err != nil {
		panic(err)
	}
	res, _ := everonce.Do(ctx, r, everonce.Key{Scope: "charges", ID: "order-7"},
		func(context.Context, *everonce.Attempt) (string, error) { return "", errors.New("timeout") })
	fmt.Println(res.Outcome)

	page, err := store.List(ctx, everonce.ListRequest{States: []everonce.State{everonce.StateAbandoned}})
	if err != nil {
		panic(err)
	}
	for _, rec := range page.Records {
		err = everonce.Settle(ctx, store, rec.ID, everonce.Settlement{
			Verdict: everonce.SettleDone, Encoded: []byte(`"receipt-1"`), By: "anna",
		})
		fmt.Println(rec.Scope, rec.Name, err)
	}
	// Output:
	// unknown
	// charges order-7 <nil>
}

// A verdict is about the attempt that was looked at. The token keeps it from a later attempt.
func ExampleSettlement() {
	ctx := context.Background()
	store := memstore.New(nil)
	r, err := everonce.NewReceiver(store, everonce.Refuse, nil)
	if err != nil {
		panic(err)
	}
	key := everonce.Key{Scope: "charges", ID: "order-7"}
	charge := func(context.Context, *everonce.Attempt) (string, error) { return "", errors.New("timeout") }
	res, _ := everonce.Do(ctx, r, key, charge)
	fmt.Println(res.Outcome)

	// Anna looks at the record, and asks the bank: it was not booked.
	page, err := store.List(ctx, everonce.ListRequest{Scope: key.Scope, Name: key.ID})
	if err != nil {
		panic(err)
	}
	verdict := everonce.Settlement{Verdict: everonce.SettleNotDone, Token: page.Records[0].Token, By: "anna"}

	// Bob was faster, and the next delivery has run since. The verdict is not about that one.
	err = r.Settle(ctx, key, everonce.Settlement{Verdict: everonce.SettleNotDone, By: "bob"})
	if err != nil {
		panic(err)
	}
	res, _ = everonce.Do(ctx, r, key, charge)
	fmt.Println(res.Outcome)

	err = r.Settle(ctx, key, verdict)
	fmt.Println(errors.Is(err, everonce.ErrLeaseLost))
	// Output:
	// unknown
	// unknown
	// true
}
