package everonce_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/store/memstore"
)

// An operation of several effects records each as a step: what is done is not done again when the
// operation is delivered anew.
func ExampleStep() {
	ctx := context.Background()
	r, err := everonce.NewReceiver(memstore.New(nil), everonce.Refuse, &everonce.Options{EffectsInSteps: true})
	if err != nil {
		panic(err)
	}

	shopOpen := false
	order := func(ctx context.Context, a *everonce.Attempt) (string, error) {
		receipt, err := everonce.Step(ctx, a, "charge", func(context.Context) (string, error) {
			fmt.Println("charging")
			return "receipt-1", nil
		})
		if err != nil {
			return "", err
		}
		parcel, err := everonce.Step(ctx, a, "ship", func(context.Context) (string, error) {
			if !shopOpen {
				return "", everonce.NotDone(errors.New("the warehouse is closed"))
			}
			fmt.Println("shipping")
			return "parcel-1", nil
		})
		return receipt + ", " + parcel, err
	}

	key := everonce.Key{Scope: "orders", ID: "order-7"}
	for range 3 {
		res, err := everonce.Do(ctx, r, key, order)
		fmt.Println(res.Outcome, res.Value, err)
		shopOpen = true
	}
	// Output:
	// charging
	// failed  step "ship": the warehouse is closed
	// shipping
	// executed receipt-1, parcel-1 <nil>
	// replayed receipt-1, parcel-1 <nil>
}

// A failure between two steps leaves nothing half done, so the next delivery may continue, under Refuse too.
// Without the declaration it is unknown what the work did outside its steps.
func ExampleEffectsInSteps() {
	ctx := context.Background()
	r, err := everonce.NewReceiver(memstore.New(nil), everonce.Refuse, nil)
	if err != nil {
		panic(err)
	}

	templates := errors.New("no such template")
	welcome := func(ctx context.Context, a *everonce.Attempt) (string, error) {
		account, err := everonce.Step(ctx, a, "account", func(context.Context) (string, error) {
			fmt.Println("opening an account")
			return "account-1", nil
		})
		if err != nil {
			return "", err
		}
		if a.Number() == 1 {
			return "", templates // of the mail that would come next
		}
		return account + " welcomed", nil
	}
	deliver := func(id string, opts ...everonce.CallOption) {
		for range 2 {
			res, err := everonce.Do(ctx, r, everonce.Key{Scope: "customers", ID: id}, welcome, opts...)
			fmt.Println(res.Outcome, res.Value, errors.Is(err, templates))
		}
	}
	deliver("ada", everonce.EffectsInSteps())
	deliver("bob")
	// Output:
	// opening an account
	// failed  true
	// executed account-1 welcomed false
	// opening an account
	// unknown  true
	// unknown  false
}
