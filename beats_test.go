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
	var b beats
	want := map[*Attempt]time.Duration{}
	check := func() {
		t.Helper()
		if len(b) != len(want) {
			t.Fatalf("%d beats, want %d", len(b), len(want))
		}
		for i, a := range b {
			if int(a.beat.index) != i || a.beat.due != want[a] {
				t.Fatalf("at %d: a beat at %v of an attempt that is to beat at %v, and knows the index %d", i, a.beat.due, want[a], a.beat.index)
			}
			if a.beat.due < b[0].beat.due {
				t.Fatalf("the beat at %d is before the first one", i)
			}
		}
	}
	for range 5000 {
		if n := len(b); n == 0 || n < 50 && rng.IntN(2) == 0 {
			a := new(Attempt)
			a.beat.due = time.Duration(rng.IntN(40)) * time.Second
			want[a] = a.beat.due
			b.add(a)
		} else {
			a := b[rng.IntN(n)]
			delete(want, a)
			if b.remove(a); a.beat.index != notDue {
				t.Fatalf("an attempt that was taken out has the index %d", a.beat.index)
			}
		}
		check()
	}
	for _, next := range slices.Sorted(maps.Values(want)) {
		if b[0].beat.due != next {
			t.Fatalf("the next beat is at %v, want %v", b[0].beat.due, next)
		}
		b.remove(b[0])
	}
}
