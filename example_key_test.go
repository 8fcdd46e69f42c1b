package everonce_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/store/memstore"
)

// A scope says who and what: no two lists of parts give the same one, whatever is in them.
func ExampleScopeOf() {
	a := everonce.ScopeOf("tenant-1", "POST /charges")
	b := everonce.ScopeOf("tenant-1/POST ", "charges")
	fmt.Println(a)
	fmt.Println(b)
	fmt.Println(a.Within("tenant-1"), b.Within("tenant-1"))
	fmt.Printf("%q\n", a.Parts())
	// Output:
	// tenant-1/POST %2Fcharges
	// tenant-1%2FPOST /charges
	// true false
	// ["tenant-1" "POST /charges"]
}

// A key that is used again for another request is refused, not answered with another's receipt.
func ExampleFingerprintOf() {
	ctx := context.Background()
	r, err := everonce.NewReceiver(memstore.New(nil), everonce.Refuse, nil)
	if err != nil {
		panic(err)
	}
	charge := func(amount int64, currency string) {
		key := everonce.Key{Scope: "charges", ID: "order-7"}
		res, err := everonce.Do(ctx, r, key, func(context.Context, *everonce.Attempt) (string, error) {
			return fmt.Sprintf("receipt over %d %s", amount, currency), nil
		}, everonce.FingerprintOf(amount, currency))
		fmt.Println(res.Outcome, res.Value, errors.Is(err, everonce.ErrMismatch))
	}
	charge(1250, "EUR")
	charge(1250, "EUR")
	charge(9999, "EUR")
	// Output:
	// executed receipt over 1250 EUR false
	// replayed receipt over 1250 EUR false
	// mismatch  true
}
