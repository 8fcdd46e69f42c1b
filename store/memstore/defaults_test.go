package memstore

import "testing"

// The defaults are the ones in docs/reference/options.md.
func TestMaxRecords(t *testing.T) {
	t.Parallel()
	for given, want := range map[int]int64{0: 1_000_000, -1: 1_000_000, 7: 7} {
		if s := New(&Options{MaxRecords: given}); s.max != want {
			t.Errorf("MaxRecords of %d is %d, want %d", given, s.max, want)
		}
	}
}
