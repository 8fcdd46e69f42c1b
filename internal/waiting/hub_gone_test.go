package waiting

import (
	"testing"
	"testing/synctest"

	"github.com/everonce/everonce/driver"
)

// A pause that is over just when the last of a crowd goes begins no other, which would go on for as long as the process.
func TestPauseThatEndsAsTheCrowdGoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := new(Hub)
		h.mu.Lock()
		c := h.join(driver.RecordID{1})
		h.leave(driver.RecordID{1}, c)
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
