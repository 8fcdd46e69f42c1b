package memstore

import (
	"testing"

	"github.com/everonce/everonce"
)

// What was given back is handed out again, and has forgotten what it was.
func TestPool(t *testing.T) {
	var p pool
	taken := map[*entry]bool{}
	for range 3 * slabSize {
		e := p.take()
		if taken[e] {
			t.Fatal("an entry was handed out twice")
		}
		taken[e] = true
		e.id, e.data, e.next = everonce.RecordID{1}, []byte("result"), e
	}
	for e := range taken {
		p.give(e)
	}
	for range len(taken) {
		e := p.take()
		if !taken[e] || e.id != (everonce.RecordID{}) || e.data != nil || e.next != nil {
			t.Fatalf("handed out: %+v; want an empty one that was given back", e)
		}
		delete(taken, e)
	}
}
