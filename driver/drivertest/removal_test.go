package drivertest

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/store/memstore"
)

// A store may say of what a removal holds that it is in progress, as mysqlstore does where that takes long. The
// checks then try again, but find one that says so when the removal is over.
func TestClaimCollidesWithRemoval(t *testing.T) {
	for name, check := range map[string]func(*env){"deletion": checkDeleteMeets, "purge": checkReclaimed} {
		for _, stays := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, held for ever %v", name, stays), func(t *testing.T) {
				t.Parallel()
				s := &holding{Store: memstore.New(nil), stays: stays}
				failures := watch(t, func(r *recorder) { check(newEnv(r, Harness{Store: s, Peer: s}, Capabilities{}.withDefaults())) })
				if stays != (len(failures) > 0) || s.met.Load() == 0 {
					t.Errorf("%d claims collided with a removal: %q", s.met.Load(), failures)
				}
			})
		}
	}
}

// holding holds all records while it removes, until a claim collides with the removal; further claims of a key wait
// for the next removal to begin.
type holding struct {
	driver.Store
	known sync.Map
	fresh atomic.Bool // there are new keys, of which nothing has been removed
	holds atomic.Bool
	met   atomic.Int64
	stays bool // what is held stays so
}

func (s *holding) Claim(ctx context.Context, req driver.ClaimRequest) (driver.ClaimResult, error) {
	if _, known := s.known.LoadOrStore(req.ID, true); known {
		await(func() bool { return !s.fresh.Load() })
	} else {
		s.fresh.Store(true)
	}
	if s.holds.Load() {
		s.met.Add(1)
		return driver.ClaimResult{Decision: driver.DecideInProgress}, nil
	}
	return s.Store.Claim(ctx, req)
}

func (s *holding) hold() {
	if s.fresh.Load() {
		before := s.met.Load()
		s.holds.Store(true)
		s.fresh.Store(false)
		await(func() bool { return s.met.Load() > before })
		s.holds.Store(s.stays)
	}
}

func (s *holding) Purge(ctx context.Context, req driver.PurgeRequest) (driver.PurgeResult, error) {
	s.hold()
	return s.Store.Purge(ctx, req)
}

func (s *holding) DeleteScope(ctx context.Context, req driver.DeleteScopeRequest) (driver.DeleteScopeResult, error) {
	s.hold()
	return s.Store.(driver.ScopeDeleter).DeleteScope(ctx, req)
}

func await(holds func() bool) {
	for end := time.Now().Add(patience); !holds() && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
}
