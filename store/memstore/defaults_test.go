package memstore

import (
	"math"
	"testing"
)

// What is left out has the value that docs/reference/options.md tells, and there are no more records than numbers for them.
func TestMaxRecords(t *testing.T) {
	t.Parallel()
	for given, want := range map[int]int64{0: 1_000_000, -1: 1_000_000, 7: 7, math.MaxInt: math.MaxUint32} {
		if s := New(&Options{MaxRecords: given}); s.max != want {
			t.Errorf("MaxRecords of %d is %d, want %d", given, s.max, want)
		}
	}
}
