package everonce

import (
	"testing"
	"testing/synctest"

	"github.com/everonce/everonce/driver"
)

// A pause that is over just when the last of a crowd goes begins no other, which would go on for as long as the process.
func TestPauseThatEndsAsTheCrowdGoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := new(hub)
		h.mu.Lock()
		c := h.join(RecordID{1})
		h.leave(RecordID{1}, c)
		h.mu.Unlock()
		h.pauseOver(c) // it was waiting for the lock
		if c.timer.Stop() {
			t.Error("a crowd of nobody has begun a pause")
		}
	})
}

// Of those whose claims were sent again, and who have gone, nothing stays with the others, who may wait for long.
func TestNoncesGoWithTheirCallers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := new(core)
		wait := func() *waiter {
			w := &waiter{op: &operation{core: r, id: RecordID{1}, resent: true}, nonce: driver.NewNonce()}
			w.join(new(driver.ClaimResult))
			return w
		}
		stays := wait()
		for range 100 {
			wait().leave()
		}
		if n := len(stays.crowd.resent); n != 1 {
			t.Errorf("the nonces of %d are kept, of one that waits", n)
		}
		stays.leave()
	})
}
