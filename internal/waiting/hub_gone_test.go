package waiting

import (
	"testing"
	"testing/synctest"

	"github.com/everonce/everonce/driver"
)

// A pause that is over just when the last of a crowd goes begins no other, which would go on for as long as the
// process.
func TestPauseThatEndsAsTheCrowdGoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := new(Hub)
		h.mu.Lock()
		c := h.join(driver.RecordID{1})
		h.leave(driver.RecordID{1}, c)
		h.mu.Unlock()
		h.pauseOver(c) // it was waiting for the lock
		if c.timer.Stop() {
			t.Error("an empty crowd has begun a pause")
		}
	})
}

// The nonces of callers that have gone, whose claims were sent again, are not kept with the others, which may wait
// for long.
func TestNoncesGoWithTheirCallers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := new(Hub)
		wait := func() *Waiter {
			w := &Waiter{Hub: h, ID: driver.RecordID{1}, Nonce: driver.NewNonce(), Resent: true}
			w.join(new(driver.ClaimResult))
			return w
		}
		stays := wait()
		for range 100 {
			wait().Leave()
		}
		if n := len(stays.crowd.resent); n != 1 {
			t.Errorf("the nonces of %d are kept, of one that waits", n)
		}
		stays.Leave()
	})
}
