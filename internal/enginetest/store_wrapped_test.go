package enginetest

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/store/memstore"
)

// hungStore is a store in memory that has been made slow: what that one declares of its calls does not hold for these.
type hungStore struct{ *memstore.Store }

func (hungStore) Claim(ctx context.Context, _ driver.ClaimRequest) (driver.ClaimResult, error) {
	<-ctx.Done()
	return driver.ClaimResult{}, cutShort(ctx)
}

// Calls of a store that embeds one in memory have a timeout, which the embedded store's own calls need not have.
func TestStoreAroundAPromptOneHasATimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReceiver(t, hungStore{memstore.New(nil)}, everonce.Refuse, &everonce.Options{StoreTimeout: time.Second})
		start := time.Now()
		do(t, r, keyOf("x"), never(t), everonce.StoreFailed, everonce.ErrStore)
		if d := time.Since(start); d < 3*time.Second || d > 4*time.Second { // claimTries
			t.Errorf("three tries of a second each took %v", d)
		}
	})
}
