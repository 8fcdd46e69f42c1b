package network

import (
	"fmt"
	"math"
	"testing"
)

// draws is enough for a share to be within tolerance of what it should be: about five standard deviations.
const (
	draws     = 40_000
	tolerance = 0.011
)

func TestShares(t *testing.T) {
	t.Parallel()
	m := Bad(1)
	var lost, answers, duplicates, delays, arrived int
	for i := range draws {
		f := m.Fate(fmt.Sprintf("payment-%d", i/4), 1+i%4)
		if f.LoseRequest {
			lost++
			if (f != Fate{LoseRequest: true}) {
				t.Fatalf("a lost request has a fate: %+v", f)
			}
			continue
		}
		arrived++
		if f.LoseAnswer {
			answers++
		}
		if f.Duplicate {
			duplicates++
		}
		if f.Delay > 0 {
			delays++
		}
		if f.Delay < 0 || f.Delay > m.MaxDelay || f.Gap < 0 || f.Gap > m.MaxDelay || !f.Duplicate && f.Gap != 0 {
			t.Fatalf("out of bounds: %+v", f)
		}
	}
	for _, share := range []struct {
		what    string
		n, of   int
		percent float64
	}{
		{"requests lost", lost, draws, 0.25},
		{"answers lost", answers, arrived, 0.25},
		{"duplicates", duplicates, arrived, 0.1},
		{"delays", delays, arrived, 0.1},
	} {
		if got := float64(share.n) / float64(share.of); math.Abs(got-share.percent) > tolerance {
			t.Errorf("%s: %.3f, want %.3f", share.what, got, share.percent)
		}
	}
}

// TestFateIsTheSeeds: the same seed, key and number give the same fate, in any order; another gives another.
func TestFateIsTheSeeds(t *testing.T) {
	t.Parallel()
	fates := func(seed uint64, key string) (all [64]Fate) {
		for n := len(all) - 1; n >= 0; n-- {
			all[n] = Bad(seed).Fate(key, n+1)
		}
		return all
	}
	first := fates(7, "payment-1")
	for n := range first {
		if got := Bad(7).Fate("payment-1", n+1); got != first[n] {
			t.Fatalf("request %d: %+v, and then %+v", n+1, first[n], got)
		}
	}
	if fates(8, "payment-1") == first {
		t.Error("another seed has the same faults")
	}
	if fates(7, "payment-2") == first {
		t.Error("another key has the same faults")
	}
}
