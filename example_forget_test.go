package everonce_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/store/memstore"
)

// errRunning: an attempt of the tenant is running. Forget it again when that has ended.
var errRunning = errors.New("an attempt is running")

func forget(ctx context.Context, store driver.ScopeDeleter, tenant string) error {
	for {
		res, err := store.DeleteScope(ctx, driver.DeleteScopeRequest{Scope: everonce.ScopeOf(tenant)})
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
