package memstore_test

import (
	"testing"

	"github.com/everonce/everonce/store/memstore"
	"github.com/everonce/everonce/store/storetest"
)

func TestConformance(t *testing.T) {
	storetest.Run(t, func(testing.TB) storetest.Harness {
		clk := &clock{}
		return storetest.Harness{Store: memstore.New(&memstore.Options{Now: clk.Now}), Advance: clk.advance}
	}, storetest.Capabilities{
		Lister: true, ScopeDeleter: true, HealthChecker: true, IdentityKeeper: true, Recaller: true,
		MaxResult: 16 << 20,
	})
}

// The default clock cannot be moved: the suite waits for it.
func TestConformanceByTheDefaultClock(t *testing.T) {
	storetest.Run(t, func(testing.TB) storetest.Harness {
		return storetest.Harness{Store: memstore.New(nil)}
	}, storetest.Capabilities{
		Lister: true, ScopeDeleter: true, HealthChecker: true, IdentityKeeper: true, Recaller: true,
		MaxResult: 16 << 20,
	})
}
