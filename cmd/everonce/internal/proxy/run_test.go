package proxy

import (
	"context"
	"testing"
)

// A second signal that comes while nothing runs gives nothing up: what sends a signal to a whole group of processes, as timeout(1) does, sends
// two of them.
func TestNothingRunsAtTheSecondSignal(t *testing.T) {
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for range 64 { // of two that are ready, select takes any
		if err := newRunning().wait(ended); err != nil {
			t.Fatalf("%v, though nothing runs", err)
		}
	}
}
