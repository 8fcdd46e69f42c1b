package everonce_test

import (
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/everonce/everonce"
)

// leaveClaimed has a store that goes away as it writes a claim, and is not there to take it back either.
func leaveClaimed(t *testing.T, s *faultStore, r *everonce.Receiver, key everonce.Key) {
	t.Helper()
	s.on("Claim", 0, lose(errNet))
	s.on("Release", 0, refuse(errNet))
	do(t, r, key, never(t), everonce.StoreFailed, errNet)
	checkEqual(t, "state", s.record(t, key).State, everonce.StateClaimed)
}

// A store that goes away in the middle of a claim leaves nothing unknown, however long it is away: no work was called. The receiver takes the
// claims back with those that are answered again, one with each, whether of that key or of another.
func TestWhatCouldNotBeTakenBackIsTakenBackLater(t *testing.T) {
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
				checkEqual(t, "state", s.record(t, keyOf("y")).State, everonce.StateReleased)
				releases := s.count("Release")
				do(t, r, keyOf("y"), returns("v", nil), everonce.Executed, nil)
				checkEqual(t, "releases of what is taken back", s.count("Release"), releases)
			})
		})
	}
}

// As long as the store is away, a key that was left is asked about once in a call, and not claimed.
func TestWhatWasLeftIsTakenBackBeforeItIsClaimed(t *testing.T) {
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

// What another attempt has taken over is not touched by that.
func TestWhatWasLeftAndTakenOverIsLeftAlone(t *testing.T) {
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
func TestWhatIsLeftIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFaultStore()
		r := newReceiver(t, s, everonce.Refuse, nil)
		for i := range 1001 {
			leaveClaimed(t, s, r, keyOf(strconv.Itoa(i)))
		}
		s.heal()
		do(t, r, keyOf("x"), returns("v", nil), everonce.Executed, nil)
		for range 999 {
			do(t, r, keyOf("x"), never(t), everonce.Replayed, nil)
		}
		for i, want := range map[int]everonce.State{0: everonce.StateReleased, 999: everonce.StateReleased, 1000: everonce.StateClaimed} {
			checkEqual(t, "state of "+strconv.Itoa(i), s.record(t, keyOf(strconv.Itoa(i))).State, want)
		}
	})
}
