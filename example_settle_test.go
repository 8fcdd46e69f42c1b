package everonce_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/store/memstore"
)

// Under Refuse an operation whose outcome nobody knows waits for somebody who finds out.
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

	// What is settled is settled.
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

	page, err := store.List(ctx, driver.ListRequest{States: []driver.State{driver.StateAbandoned}})
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

// What was found out is about the attempt that was looked at. Its token keeps the verdict from one that followed meanwhile.
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
	found, err := store.Get(ctx, driver.GetRequest{ID: r.RecordID(key)})
	if err != nil {
		panic(err)
	}
	verdict := everonce.Settlement{Verdict: everonce.SettleNotDone, Token: found.Record.Token, By: "anna"}

	// Bob was faster, and the next delivery has run since. Nobody has asked about that one.
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
