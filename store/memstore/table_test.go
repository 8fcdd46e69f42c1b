package memstore

import (
	"math/rand/v2"
	"testing"

	"github.com/everonce/everonce"
)

// Entries that share the part of the ID by which the map finds them are told apart, in whatever order they
// come and go.
func TestTableTellsApartWhatSharesAPart(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	ids := make([]everonce.RecordID, 12)
	for i := range ids {
		ids[i][8] = byte(i % 3) // three parts
		ids[i][31] = byte(i)
	}
	var tab table
	want := map[everonce.RecordID]*entry{}
	for range 5000 {
		id := ids[rng.IntN(len(ids))]
		switch e := tab.find(&id); {
		case e != want[id]:
			t.Fatalf("found %p for %v, want %p", e, id, want[id])
		case e != nil:
			tab.remove(e)
			delete(want, id)
		default:
			want[id] = &entry{id: id}
			tab.put(want[id])
		}
		seen := 0
		for e := range tab.all() {
			if seen++; want[e.id] != e {
				t.Fatalf("%v is in the table", e.id)
			}
		}
		if seen != len(want) {
			t.Fatalf("%d entries, want %d", seen, len(want))
		}
	}
	for e := range tab.all() { // what is handed out may be removed
		tab.remove(e)
		delete(want, e.id)
	}
	if len(want) != 0 || len(tab.heads) != 0 {
		t.Errorf("%d entries were not handed out, %d heads are left", len(want), len(tab.heads))
	}
}
