package everonce_test

import (
	"context"
	"fmt"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/store/memstore"
)

// A charge that is delivered three times is made once, and answered three times.
func ExampleDo() {
	ctx := context.Background()
	store := memstore.New(nil) // in production: pgxstore, sqlitestore, …
	r, err := everonce.NewReceiver(store, everonce.Refuse, nil)
	if err != nil {
		panic(err)
	}

	charge := func(ctx context.Context, a *everonce.Attempt) (string, error) {
		fmt.Println("charging, with the key", a.DownstreamKey("charge")[:8])
		return "receipt-1", nil
	}
	key := everonce.Key{Scope: everonce.ScopeOf("tenant-1", "POST /charges"), ID: "order-7"}
	for range 3 {
		res, err := everonce.Do(ctx, r, key, charge, everonce.FingerprintOf(1250, "EUR"))
		fmt.Println(res.Outcome, res.Value, err)
	}
	// Output:
	// charging, with the key dcfb1551
	// executed receipt-1 <nil>
	// replayed receipt-1 <nil>
	// replayed receipt-1 <nil>
}
