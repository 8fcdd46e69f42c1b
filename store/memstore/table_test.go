package memstore

import (
	"encoding/binary"
	"math/rand/v2"
	"testing"

	"github.com/everonce/everonce/driver"
)

// The table holds what a map holds, whatever comes and goes: IDs that share what a slot has of them, that crowd
// around the border of the slots, and many.
func TestTable(t *testing.T) {
	for name, id := range map[string]func(*rand.Rand) driver.RecordID{
		"the same mark": func(rng *rand.Rand) (id driver.RecordID) {
			id[8] = byte(rng.IntN(3))
			id[31] = byte(rng.IntN(8))
			return id
		},
		"the same home": func(rng *rand.Rand) (id driver.RecordID) {
			binary.LittleEndian.PutUint64(id[8:], inverse(spread)*(uint64(rng.IntN(2))-1<<40+uint64(rng.IntN(12))<<33))
			return id
		},
		"many": func(rng *rand.Rand) (id driver.RecordID) {
			binary.LittleEndian.PutUint64(id[8:], rng.Uint64N(3000)*0x9E3779B97F4A7C15)
			return id
		},
	} {
		t.Run(name, func(t *testing.T) { testTable(t, id) })
	}
}

func testTable(t *testing.T, draw func(*rand.Rand) driver.RecordID) {
	rng := rand.New(rand.NewPCG(1, 2))
	tab := table{pool: new(pool)}
	want := map[driver.RecordID]*entry{}
	for range 300 {
		for range rng.IntN(60) {
			id := draw(rng)
			switch e := tab.find(&id); {
			case e != want[id]:
				t.Fatalf("found %p for %v, want %p", e, id, want[id])
			case e != nil:
				tab.remove(e)
				delete(want, id)
			default:
				if want[id] = tab.add(&id); want[id].id != id {
					t.Fatalf("the entry of %v is of %v", id, want[id].id)
				}
			}
		}
		left := map[driver.RecordID]*entry{}
		share := rng.IntN(4)
		for e := range tab.all() { // what is handed out may be removed
			id := e.id
			if want[id] != e {
				t.Fatalf("%v was handed out twice, or is not in the table", id)
			}
			delete(want, id)
			if share == 0 {
				tab.remove(e)
			} else {
				left[id] = e
			}
		}
		if len(want) != 0 {
			t.Fatalf("%d entries were not handed out", len(want))
		}
		if want = left; tab.count != len(want) {
			t.Fatalf("%d entries, want %d", tab.count, len(want))
		}
	}
}

// inverse returns what gives 1 if it is multiplied with an odd number.
func inverse(odd uint64) uint64 {
	x := odd
	for range 6 { // the number of bits that are right doubles, from 3 on
		x *= 2 - odd*x
	}
	return x
}

// An even factor would give one mark to two parts of IDs.
func TestSpreadIsOdd(t *testing.T) {
	if inverse(spread)*spread != 1 {
		t.Errorf("%d is even", spread)
	}
}
