package retry

import (
	"testing"
	"time"
)

// The pauses between tries grow from about 10 ms to about a second, however many there are, and are not the same
// for all.
func TestBackoff(t *testing.T) {
	for n := 1; n < 200; n++ {
		middle := min(10*time.Millisecond<<min(n-1, 20), time.Second)
		draws := map[time.Duration]bool{}
		for range 20 {
			d := Backoff(n)
			draws[d] = true
			if d < middle/2 || d >= middle/2+middle {
				t.Fatalf("%v before try %d, want about %v", d, n+1, middle)
			}
		}
		if len(draws) == 1 {
			t.Errorf("all pauses before try %d are %v", n+1, Backoff(n))
		}
	}
}
