package sqlitestore_test

import (
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/everonce/everonce/store/sqlitestore"
	"github.com/everonce/everonce/store/storetest"
)

// clock is a store's clock that stands still unless a test moves it.
type clock struct{ ahead atomic.Int64 }

func (c *clock) now() time.Time {
	return time.Date(2030, time.May, 4, 3, 2, 1, 0, time.UTC).Add(time.Duration(c.ahead.Load()))
}

func (c *clock) advance(d time.Duration) { c.ahead.Add(int64(d)) }

// harness has two handles on one file, as two processes have, and a clock that is moved.
func harness(t testing.TB) storetest.Harness {
	c := new(clock)
	path := filepath.Join(t.TempDir(), "records.db")
	return storetest.Harness{
		Store:   open(t, path, sqlitestore.Options{}.WithClock(c.now)),
		Peer:    open(t, path, sqlitestore.Options{}.WithClock(c.now)),
		Advance: c.advance,
	}
}

func capabilities() storetest.Capabilities {
	return storetest.Capabilities{
		Lister: true, ScopeDeleter: true, HealthChecker: true, IdentityKeeper: true,
		MaxResult: 16 << 20,
	}
}

func TestConformance(t *testing.T) { storetest.Run(t, harness, capabilities()) }
