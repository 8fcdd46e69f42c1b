package sqlstore

import (
	"encoding/binary"
	"sync/atomic"

	"github.com/everonce/everonce/driver"
)

// missHints remembers the keys for which a look for a replay has lately found no row. The call that then records such a
// key may use the cheaper statement, which does not write over a row: if a row has come since, that is a conflict, and
// the next look sees it. An entry is a hint, which may be lost and is used once.
type missHints struct{ slots [1 << 10]atomic.Uint64 }

// slot returns the place of a key, and what stands there for it.
func (a *missHints) slot(id *driver.RecordID) (*atomic.Uint64, uint64) {
	n := binary.LittleEndian.Uint64(id[8:16]) // of the hash
	return &a.slots[n%uint64(len(a.slots))], n | 1
}

func (a *missHints) note(id *driver.RecordID, absent bool) {
	slot, mine := a.slot(id)
	if absent {
		slot.Store(mine)
	} else {
		slot.CompareAndSwap(mine, 0)
	}
}

// take reports whether the key was absent, and forgets it.
func (a *missHints) take(id *driver.RecordID) bool {
	slot, mine := a.slot(id)
	return slot.CompareAndSwap(mine, 0)
}
