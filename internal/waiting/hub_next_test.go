package waiting

import (
	"testing"
	"testing/synctest"

	"github.com/everonce/everonce/driver"
)

// A caller of an answered crowd that leaves only after others have begun the next crowd for the same record must
// not touch that one: otherwise later callers would begin yet another, each with its own claims.
func TestALateLeaverDoesNotTouchTheNextCrowd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // no pause is over meanwhile, which would be beside these calls
		var h Hub
		id := driver.RecordID{1}
		told := h.join(id)
		h.answer(id, told, 1, &driver.ClaimResult{Decision: driver.DecideReplay})
		next := h.join(id)
		h.leave(id, told)
		if h.crowds[id] != next || h.join(id) != next {
			t.Error("the next crowd is gone with the last of the one before")
		}
		h.leave(id, next)
		h.leave(id, next)
		if len(h.crowds) != 0 || h.waiting.Load() != 0 {
			t.Errorf("%d crowds and %d callers are left", len(h.crowds), h.waiting.Load())
		}
	})
}
