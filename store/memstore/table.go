package memstore

import (
	"encoding/binary"
	"iter"
	"math/bits"
	"math/rand/v2"

	"github.com/everonce/everonce/driver"
)

// table finds entries by their ID. A slot is a part of the ID and the entry's number, 8 bytes without a pointer:
// a hundred thousand of them lie in a processor's cache, where those of a map with whole IDs or pointers do not.
// An entry is in the first slot from its home on that was free when it came, and there is always a free one.
type table struct {
	pool  *pool
	slots []uint64 // none, or a power of two of them; 0 is free
	count int
	shift uint8 // 64 less the bits of an index into slots
}

// spread is unknown outside: nobody can choose keys whose entries crowd together.
var spread = rand.Uint64() | 1 //nolint:gosec // seeded by the system; it is no key

// markOf is what an ID, which is a hash already, comes to in a slot: its upper half is found there, and its first
// bits are the home.
func markOf(id *driver.RecordID) uint64 { return binary.LittleEndian.Uint64(id[8:]) * spread }

const numberBits = 32 // of a slot: the entry's number, from 1 on

func (t *table) home(mark uint64) int { return int(mark >> t.shift) } //nolint:gosec // an index

// find returns the entry of an ID, or nil.
func (t *table) find(id *driver.RecordID) *entry {
	if len(t.slots) == 0 {
		return nil
	}
	mark := markOf(id)
	for i := t.home(mark); ; i++ {
		s := t.slots[i&(len(t.slots)-1)]
		if s == 0 {
			return nil
		}
		if (s^mark)>>numberBits == 0 {
			if e := t.pool.at(uint32(s)); e.id == *id { //nolint:gosec // the number
				return e
			}
		}
	}
}

// add returns a new entry of an ID that is not there.
func (t *table) add(id *driver.RecordID) *entry {
	if t.count++; 8*t.count > 7*len(t.slots) {
		t.grow()
	}
	number := t.pool.take()
	t.place(markOf(id)>>numberBits<<numberBits | uint64(number))
	e := t.pool.at(number)
	e.id = *id
	return e
}

func (t *table) place(s uint64) {
	for i := t.home(s); ; i++ {
		if at := &t.slots[i&(len(t.slots)-1)]; *at == 0 {
			*at = s
			return
		}
	}
}

func (t *table) grow() {
	old := t.slots
	t.slots = make([]uint64, max(8, 2*len(old)))
	t.shift = uint8(64 - bits.TrailingZeros(uint(len(t.slots)))) //nolint:gosec // at most 64
	for _, s := range old {
		if s != 0 {
			t.place(s)
		}
	}
}

// remove takes out an entry that is there, and gives it back. What follows it moves up, so that no free slot
// comes between an entry and its home.
func (t *table) remove(e *entry) {
	t.count--
	last := len(t.slots) - 1
	i := t.home(markOf(&e.id))
	for t.pool.at(uint32(t.slots[i])) != e { //nolint:gosec // the number
		i = (i + 1) & last
	}
	t.pool.give(uint32(t.slots[i])) //nolint:gosec // the number
	for j := i; ; {
		j = (j + 1) & last
		s := t.slots[j]
		if s == 0 {
			break
		}
		if (j-t.home(s))&last >= (j-i)&last { // its home is not after i
			t.slots[i], i = s, j
		}
	}
	t.slots[i] = 0
}

// all goes through the entries. The one that is handed out may be removed: it goes backwards from a free slot,
// so that what moves up then was handed out before.
func (t *table) all() iter.Seq[*entry] {
	return func(yield func(*entry) bool) {
		last := len(t.slots) - 1
		end := last
		for end >= 0 && t.slots[end] != 0 {
			end--
		}
		for n := range len(t.slots) {
			if s := t.slots[(end-n)&last]; s != 0 && !yield(t.pool.at(uint32(s))) { //nolint:gosec // the number
				return
			}
		}
	}
}
