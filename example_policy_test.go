package everonce_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/store/memstore"
)

// The receiver never runs again what nobody knows the outcome of. One partner deduplicates by the key that
// it is given: calls to it may run again.
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
