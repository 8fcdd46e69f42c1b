package everonce

import (
	"testing"
	"testing/synctest"
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
