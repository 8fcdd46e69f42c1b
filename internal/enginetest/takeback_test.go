package enginetest

import (
	"context"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/driver"
)

// leaveClaimed leaves a claim in a store that fails while it writes the claim, and also when it should be taken
// back.
func leaveClaimed(t *testing.T, s *faultStore, r *everonce.Receiver, key everonce.Key) {
	t.Helper()
	s.on("Claim", 0, lose(errNet))
	s.on("Release", 0, refuse(errNet))
	do(t, r, key, never(t), everonce.StoreFailed, errNet)
	checkEqual(t, "state", s.record(t, key).State, driver.StateClaimed)
}

// A store that goes away in the middle of a claim leaves nothing unknown, however long it is away: no work was
// called. The receiver takes the claims back: a key's claims before the key is claimed again, and the others after
// the first claim that is answered again.
func TestLeftClaimsAreTakenBackLater(t *testing.T) {
	for name, away := range map[string]time.Duration{"within the lease": time.Second, "after it": time.Hour} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newFaultStore()
				r := newReceiver(t, s, everonce.Refuse, nil)
				leaveClaimed(t, s, r, keyOf("x"))
				leaveClaimed(t, s, r, keyOf("y"))
				time.Sleep(away)
				s.heal()
				do(t, r, keyOf("x"), returns("v", nil), everonce.Executed, nil)
				do(t, r, keyOf("z"), returns("v", nil), everonce.Executed, nil)
				checkEqual(t, "state", s.record(t, keyOf("y")).State, driver.StateReleased)
				releases := s.count("Release")
				do(t, r, keyOf("y"), returns("v", nil), everonce.Executed, nil)
				checkEqual(t, "releases of what is taken back", s.count("Release"), releases)
			})
		})
	}
}

// As long as the store is away, a key that was left is asked about once in a call, and not claimed.
func TestALeftClaimIsTakenBackBeforeTheNextClaim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFaultStore()
		r := newReceiver(t, s, everonce.Refuse, nil)
		leaveClaimed(t, s, r, keyOf("x"))
		claims, releases := s.count("Claim"), s.count("Release")
		do(t, r, keyOf("x"), never(t), everonce.StoreFailed, errNet)
		checkEqual(t, "claims", s.count("Claim"), claims)
		checkEqual(t, "releases", s.count("Release"), releases+1)
		s.heal()
		do(t, r, keyOf("x"), returns("v", nil), everonce.Executed, nil)
	})
}

// A record that another attempt has taken over is left alone.
func TestALeftClaimThatWasTakenOverIsLeftAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFaultStore()
		r, other := newReceiver(t, s, everonce.Reexecute, nil), newReceiver(t, s.under, everonce.Reexecute, nil)
		leaveClaimed(t, s, r, keyOf("x"))
		time.Sleep(time.Hour)
		do(t, other, keyOf("x"), returns("theirs", nil), everonce.Executed, nil)
		s.heal()
		res, _ := do(t, r, keyOf("x"), never(t), everonce.Replayed, nil)
		checkEqual(t, "value", res.Value, "theirs")
	})
}

// A receiver remembers the first thousand, which are those that were under way.
func TestLeftClaimsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFaultStore()
		r := newReceiver(t, s, everonce.Refuse, nil)
		for i := range 1001 {
			leaveClaimed(t, s, r, keyOf(strconv.Itoa(i)))
		}
		s.heal()
		do(t, r, keyOf("x"), returns("v", nil), everonce.Executed, nil)
		for range 1000/16 + 1 {
			do(t, r, keyOf("x"), never(t), everonce.Replayed, nil)
		}
		for i, want := range map[int]driver.State{0: driver.StateReleased, 999: driver.StateReleased, 1000: driver.StateClaimed} {
			checkEqual(t, "state of "+strconv.Itoa(i), s.record(t, keyOf(strconv.Itoa(i))).State, want)
		}
	})
}

// Several callers of one key may each have left a claim, and it is unknown which of them holds it: all are taken
// back.
func TestSeveralLeftClaimsOfOneKeyAreTakenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFaultStore()
		r := newReceiver(t, s, everonce.Refuse, nil)
		leaveClaimed(t, s, r, keyOf("x"))
		s.on("Release", 0, func(context.Context, func() error) error {
			time.Sleep(time.Second)
			return errNet
		})
		var both sync.WaitGroup
		for range 2 { // the first asks for what was left; the second comes meanwhile
			both.Go(func() { do(t, r, keyOf("x"), never(t), everonce.StoreFailed, errNet) })
			time.Sleep(time.Millisecond)
		}
		both.Wait()
		time.Sleep(time.Hour)
		s.heal()
		do(t, r, keyOf("x"), returns("v", nil), everonce.Executed, nil)
	})
}

// Until the store has answered, no call finds a left claim: a call that comes meanwhile takes it back too.
func TestLeftClaimsAreNotFoundMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFaultStore()
		r := newReceiver(t, s, everonce.Refuse, nil)
		leaveClaimed(t, s, r, keyOf("x"))
		time.Sleep(time.Hour)
		s.heal()
		s.on("Release", 2, deaf(time.Second))
		var first sync.WaitGroup
		first.Go(func() { do(t, r, keyOf("x"), never(t), everonce.Replayed, nil) })
		synctest.Wait()
		do(t, r, keyOf("x"), returns("v", nil), everonce.Executed, nil)
		first.Wait()
	})
}

// A store that is full says so of one packet. An earlier packet may have been written, and its claim is taken back
// when there is room again.
func TestAFullStoreLeavesNothingClaimed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFaultStore()
		r := newReceiver(t, s, everonce.Refuse, nil)
		s.on("Claim", 0, refuse(driver.ErrStoreFull))
		s.on("Claim", 1, lose(errNet))
		s.on("Release", 0, refuse(driver.ErrStoreFull))
		for range 2 {
			do(t, r, keyOf("x"), never(t), everonce.StoreFailed, driver.ErrStoreFull)
		}
		time.Sleep(time.Hour)
		s.heal()
		do(t, r, keyOf("x"), returns("v", nil), everonce.Executed, nil)
	})
}

// Others' claims are taken back before a lease begins to run: a store that hangs over them costs no call its own.
func TestOthersLeftClaimsCostNoLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFaultStore()
		r := newReceiver(t, s, everonce.Refuse, nil)
		leaveClaimed(t, s, r, keyOf("y"))
		s.heal()
		do(t, r, keyOf("x"), returns("v", nil), everonce.Executed, nil)
		s.on("Release", 0, deaf(time.Hour))
		do(t, r, keyOf("z"), returns("v", nil), everonce.Executed, nil, everonce.WithLease(3*time.Second))
	})
}
