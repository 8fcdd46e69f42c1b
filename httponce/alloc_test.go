//go:build !race

package httponce_test

import (
	"net/http"
	"strconv"
	"testing"
)

// The middleware's cost is measured in allocations, not in time, so that it is the same on every machine. The race
// detector allocates too, so its builds are skipped.
func TestAllocations(t *testing.T) {
	const runs = 1000
	for name, h := range map[string]http.HandlerFunc{"json": pay, "echo": echo} {
		bare := requester(h)
		protected := requester(protectedBench(t, h, runs+2))
		keys := make([]string, runs+2)
		for i := range keys {
			keys[i] = "key-" + strconv.Itoa(i)
		}
		without := testing.AllocsPerRun(runs, func() { bare(keys[0]) })
		i := 0
		first := testing.AllocsPerRun(runs, func() { protected(keys[i]); i++ })
		replay := testing.AllocsPerRun(runs, func() { protected(keys[0]) })
		if over := first - without; over > 20 {
			t.Errorf("%s: a first execution costs %v allocations over the bare handler's %v, want at most 20", name, over, without)
		}
		if replay > 30 {
			t.Errorf("%s: a replay costs %v allocations, want at most 30, including the request's and the recorder's", name, replay)
		}
	}
}
