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
