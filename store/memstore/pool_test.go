package memstore

import (
	"testing"

	"github.com/everonce/everonce/driver"
)

// What was given back is handed out again, and has forgotten what it was; an entry stays where it is while
// others are made.
func TestPool(t *testing.T) {
	var p pool
	taken := map[uint32]*entry{}
	for range 3*slabSize + 1 {
		n := p.take()
		if taken[n] != nil || n == 0 {
			t.Fatalf("the number %d was handed out twice, or is none", n)
		}
		taken[n] = p.at(n)
		taken[n].id, taken[n].data = driver.RecordID{1}, []byte("result")
	}
	for n, e := range taken {
		if p.at(n) != e {
			t.Fatalf("entry %d has moved", n)
		}
		p.give(n)
	}
	for range len(taken) {
		n := p.take()
		if e := p.at(n); taken[n] != e || e.id != (driver.RecordID{}) || e.data != nil {
			t.Fatalf("handed out: %+v; want an empty one that was given back", e)
		}
		delete(taken, n)
	}
}
