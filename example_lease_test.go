package everonce_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/store/memstore"
)

// The lease is no limit of the work: it is renewed for as long as the work runs. It is how long the key
// stays claimed after its process has died, so a short one lets another attempt in sooner.
func ExampleWithLease() {
	ctx := context.Background()
	now := time.Date(2026, time.March, 1, 9, 0, 0, 0, time.UTC)
	store := memstore.New(&memstore.Options{Now: func() time.Time { return now }})
	r, err := everonce.NewReceiver(store, everonce.Reexecute, nil)
	if err != nil {
		panic(err)
	}
	key := everonce.Key{Scope: "locks", ID: "door-1"}
	for _, lease := range []time.Duration{0, 3 * time.Second} {
		var opts []everonce.CallOption
		if lease > 0 {
			opts = append(opts, everonce.WithLease(lease))
		}
		_, err := everonce.Do(ctx, r, key, func(ctx context.Context, _ *everonce.Attempt) (string, error) {
			got, err := store.Get(ctx, driver.GetRequest{ID: r.RecordID(key)})
			if err != nil {
				return "", err
			}
			fmt.Println("claimed for", got.Record.LeaseUntil.Sub(got.Now))
			return "", everonce.NotDone(errors.New("the door is open"))
		}, opts...)
		fmt.Println(err)
	}
	// Output:
	// claimed for 30s
	// the door is open
	// claimed for 3s
	// the door is open
}
