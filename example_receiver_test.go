package everonce_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/store/memstore"
)

// A process with the wrong secret would take every duplicate for new. It is told at its start.
func ExampleReceiver_Ready() {
	ctx := context.Background()
	store := memstore.New(nil)
	for _, secret := range []string{"the store's own secret", "a typo in the configuration"} {
		r, err := everonce.NewReceiver(store, everonce.Refuse, &everonce.Options{IdentitySecret: []byte(secret)})
		if err != nil {
			panic(err)
		}
		err = r.Ready(ctx)
		fmt.Println(err == nil, errors.Is(err, driver.ErrIdentity))
	}
	// Output:
	// true false
	// false true
}

// An adapter asks for the question that Reconcile needs before the first request comes.
func ExampleReceiver_Policy() {
	r, err := everonce.NewReceiver(memstore.New(nil), everonce.Reconcile, nil)
	if err != nil {
		panic(err)
	}
	fmt.Println(r.Policy(), r.Policy() == everonce.Reconcile)
	// Output: reconcile true
}

// A service publishes how long its answers are kept.
func ExampleReceiver_Options() {
	r, err := everonce.NewReceiver(memstore.New(nil), everonce.Refuse, nil)
	if err != nil {
		panic(err)
	}
	o := r.Options()
	fmt.Println(o.Lifetime.Retention, o.Lease, o.MaxResult)
	// Output: 24h0m0s 30s 1048576
}

// Support looks for an order in the bank's list of charges, by the key under which it was made.
func ExampleReceiver_DownstreamKey() {
	ctx := context.Background()
	r, err := everonce.NewReceiver(memstore.New(nil), everonce.Refuse, nil)
	if err != nil {
		panic(err)
	}

	bank := map[string]string{}
	key := everonce.Key{Scope: "charges", ID: "order-7"}
	_, err = everonce.Do(ctx, r, key, func(_ context.Context, a *everonce.Attempt) (string, error) {
		bank[a.DownstreamKey("charge")] = "booked on Monday"
		return "", errors.New("timeout")
	})
	fmt.Println(errors.Is(err, everonce.ErrOutcomeUnknown))
	fmt.Println(bank[r.DownstreamKey(key, "charge")])
	// Output:
	// true
	// booked on Monday
}
