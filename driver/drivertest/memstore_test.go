package drivertest_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/everonce/everonce/driver/drivertest"
	"github.com/everonce/everonce/store/memstore"
)

var memory = drivertest.Capabilities{
	Lister: true, ScopeDeleter: true, HealthChecker: true, IdentityKeeper: true, Recaller: true,
	MaxResult: 16 << 20,
}

// The memory store is tested here, so that the root module does not require what this package does.
func TestMemoryStore(t *testing.T) {
	drivertest.RunWithBugs(t, func(testing.TB) drivertest.Harness {
		var passed atomic.Int64
		start := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
		now := func() time.Time { return start.Add(time.Duration(passed.Load())) }
		return drivertest.Harness{Store: memstore.New(&memstore.Options{Now: now}), Advance: func(d time.Duration) { passed.Add(int64(d)) }}
	}, memory)
}

// The default clock cannot be moved: the suite waits for it.
func TestMemoryStoreByTheDefaultClock(t *testing.T) {
	drivertest.RunWithBugs(t, func(testing.TB) drivertest.Harness {
		return drivertest.Harness{Store: memstore.New(nil)}
	}, memory)
}
