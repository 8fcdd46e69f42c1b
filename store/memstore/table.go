package memstore

import (
	"encoding/binary"
	"iter"

	"github.com/everonce/everonce"
)

// table finds entries by their ID. Its map has a part of the ID for its key, which makes it half as large
// and quicker than one by the whole ID. Entries that share that part, which chance never brings about but
// somebody may, are chained.
type table struct{ heads map[uint64]*entry }

// partOf returns the first 8 bytes of an ID after those that stand for the scope.
func partOf(id *everonce.RecordID) uint64 { return binary.LittleEndian.Uint64(id[8:]) }

// find returns the entry of an ID, or nil.
func (t *table) find(id *everonce.RecordID) *entry {
	e := t.heads[partOf(id)]
	for e != nil && e.id != *id {
		e = e.next
	}
	return e
}

// put adds an entry whose ID is not there.
func (t *table) put(e *entry) {
	if t.heads == nil {
		t.heads = make(map[uint64]*entry)
	}
	part := partOf(&e.id)
	e.next = t.heads[part]
	t.heads[part] = e
}

// remove takes an entry out that is there.
func (t *table) remove(e *entry) {
	part := partOf(&e.id)
	head := t.heads[part]
	switch {
	case head != e:
		for head.next != e {
			head = head.next
		}
		head.next = e.next
	case e.next != nil:
		t.heads[part] = e.next
	default:
		delete(t.heads, part)
	}
}

// all goes through the entries. The one that is handed out may be removed.
func (t *table) all() iter.Seq[*entry] {
	return func(yield func(*entry) bool) {
		for _, e := range t.heads {
			for e != nil {
				next := e.next
				if !yield(e) {
					return
				}
				e = next
			}
		}
	}
}
