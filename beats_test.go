package everonce

import (
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// The earliest beat is always the first one, and every attempt knows where its own is.
func TestBeats(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	start := time.Now()
	var b beats
	want := map[*Attempt]time.Time{}
	check := func() {
		t.Helper()
		if len(b) != len(want) {
			t.Fatalf("%d beats, want %d", len(b), len(want))
		}
		for i, x := range b {
			if int(x.attempt.beat.index) != i || !x.at.Equal(want[x.attempt]) {
				t.Fatalf("at %d: a beat at %v of an attempt that is to beat at %v, and knows the index %d", i, x.at, want[x.attempt], x.attempt.beat.index)
			}
			if x.at.Before(b[0].at) {
				t.Fatalf("the beat at %d is before the first one", i)
			}
		}
	}
	for range 5000 {
		if n := len(b); n == 0 || n < 50 && rng.IntN(2) == 0 {
			a := new(Attempt)
			want[a] = start.Add(time.Duration(rng.IntN(40)) * time.Second)
			b.add(beat{want[a], a})
		} else {
			a := b[rng.IntN(n)].attempt
			delete(want, a)
			if b.remove(int(a.beat.index)); a.beat.index != notDue {
				t.Fatalf("an attempt that was taken out has the index %d", a.beat.index)
			}
		}
		check()
	}
	for _, next := range slices.SortedFunc(maps.Values(want), time.Time.Compare) {
		if !b[0].at.Equal(next) {
			t.Fatalf("the next beat is at %v, want %v", b[0].at, next)
		}
		b.remove(0)
	}
}
