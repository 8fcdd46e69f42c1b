package driver_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/store/memstore"
)

// A record answers the same claim differently as its time goes by.
func ExampleDecide() {
	now := time.Date(2026, time.March, 1, 9, 0, 0, 0, time.UTC)
	claim := driver.ClaimRequest{Nonce: driver.Nonce{2}}
	fmt.Println("no record:", driver.Decide(nil, claim, now))

	running := &driver.Record{State: driver.StateClaimed, Nonce: driver.Nonce{1}, LeaseUntil: now.Add(30 * time.Second)}
	fmt.Println("claimed:", driver.Decide(running, claim, now))
	fmt.Println("its lease has run out:", driver.Decide(running, claim, now.Add(time.Minute)))
	claim.Take = driver.TakeAbandoned
	fmt.Println("and may be taken over:", driver.Decide(running, claim, now.Add(time.Minute)))

	done := &driver.Record{State: driver.StateCompleted, ResultUntil: now.Add(time.Hour), PurgeAt: now.Add(2 * time.Hour)}
	for _, after := range []time.Duration{0, time.Hour, 2 * time.Hour} {
		fmt.Printf("completed, %v later: %v\n", after, driver.Decide(done, claim, now.Add(after)))
	}
	// Output:
	// no record: claimed
	// claimed: in_progress
	// its lease has run out: abandoned
	// and may be taken over: claimed
	// completed, 0s later: replay
	// completed, 1h0m0s later: expired
	// completed, 2h0m0s later: claimed
}

// errRunning: an attempt of the tenant is running. Forget it again when that has ended.
var errRunning = errors.New("an attempt is running")

func forget(ctx context.Context, store *memstore.Store, tenant string) error {
	for {
		res, err := store.DeleteScope(ctx, everonce.DeleteScopeRequest{Scope: everonce.ScopeOf(tenant)})
		switch {
		case err != nil:
			return err // of what cannot be read, too: it may be a running attempt
		case res.More:
		case res.Live:
			return errRunning
		default:
			return nil
		}
	}
}

// A tenant that leaves is forgotten, and with it what its keys have protected.
func ExampleScopeDeleter() {
	ctx := context.Background()
	store := memstore.New(nil)
	receiver, err := everonce.NewReceiver(store, everonce.Refuse, nil)
	if err != nil {
		panic(err)
	}
	charge := func(tenant string) {
		key := everonce.Key{Scope: everonce.ScopeOf(tenant, "charge"), ID: "order-7"}
		res, err := everonce.Do(ctx, receiver, key, func(context.Context, *everonce.Attempt) (string, error) { return "receipt", nil })
		fmt.Println(tenant, res.Outcome, err)
	}
	charge("shop-1")
	charge("shop-10")
	if err := forget(ctx, store, "shop-1"); err != nil {
		panic(err)
	}
	charge("shop-10")
	charge("shop-1")
	// Output:
	// shop-1 executed <nil>
	// shop-10 executed <nil>
	// shop-10 replayed <nil>
	// shop-1 executed <nil>
}
