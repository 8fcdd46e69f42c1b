package everonce_test

import (
	"context"
	"fmt"
	"time"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/store/memstore"
)

// All calls of an operation have the same options but for the fingerprint: they are checked once, at start-up.
func ExampleReceiver_Prepare() {
	ctx := context.Background()
	r, err := everonce.NewReceiver(memstore.New(nil), everonce.Refuse, nil)
	if err != nil {
		panic(err)
	}
	refunds, err := r.Prepare(everonce.WithLease(time.Minute), everonce.WithLifetime(everonce.Lifetime{Retention: 30 * 24 * time.Hour}))
	if err != nil {
		panic(err)
	}
	refund := func(id string, amount int) (everonce.Outcome, error) {
		res, err := everonce.Do(ctx, r, everonce.Key{Scope: "refunds", ID: id},
			func(context.Context, *everonce.Attempt) (int, error) { return amount, nil },
			refunds, everonce.FingerprintOf(amount))
		return res.Outcome, err
	}
	fmt.Println(refund("r-7", 4200))
	fmt.Println(refund("r-7", 4200))
	_, err = r.Prepare(everonce.WithLease(-time.Minute))
	fmt.Println(err != nil)
	// Output:
	// executed <nil>
	// replayed <nil>
	// true
}
