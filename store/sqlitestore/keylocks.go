package sqlitestore

import (
	"sync"

	"github.com/everonce/everonce/driver"
)

// keyLocks are the keys that open transactions of this process have claimed, so that a duplicate fails fast and does
// not wait for the writer.
type keyLocks struct {
	mu   sync.Mutex
	held map[driver.RecordID]lockHolder
	// polled are the keys of holders whose end is not reported: it must be looked up.
	polled []driver.RecordID
}

// lockHolder is a transaction. It is compared by identity.
type lockHolder interface {
	// ended reports that the transaction is over, where its end is not reported otherwise.
	ended() bool
}

// lock gives the key to a holder, and reports false where another has it.
func (k *keyLocks) lock(id driver.RecordID, by lockHolder) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if old, taken := k.held[id]; taken && old != by && !old.ended() {
		return false
	}
	if k.held == nil {
		k.held = make(map[driver.RecordID]lockHolder)
	}
	k.held[id] = by
	return true
}

// lockPolled is lock for a holder whose end is not reported. It looks up two earlier holders, so that ended ones are
// forgotten faster than new ones come.
func (k *keyLocks) lockPolled(id driver.RecordID, by lockHolder) bool {
	if !k.lock(id, by) {
		return false
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for range min(2, len(k.polled)) {
		old := k.polled[0]
		k.polled = k.polled[1:]
		switch holder, taken := k.held[old]; {
		case !taken || old == id:
		case holder.ended():
			delete(k.held, old)
		default:
			k.polled = append(k.polled, old)
		}
	}
	k.polled = append(k.polled, id)
	return true
}

// transfer gives the key to a transaction, from one that waited to begin too, and reports false where
// another has it.
func (k *keyLocks) transfer(id driver.RecordID, to *openTx) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if to.ended() { // and can complete nothing
		return true
	}
	old, taken := k.held[id]
	if _, waiting := old.(*pendingTx); taken && old != lockHolder(to) && !waiting && !old.ended() {
		return false
	}
	if k.held == nil {
		k.held = make(map[driver.RecordID]lockHolder)
	}
	k.held[id] = to
	to.keys = append(to.keys, id)
	return true
}

// locked reports whether a transaction has the key.
func (k *keyLocks) locked(id driver.RecordID) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	by, taken := k.held[id]
	if taken && by.ended() {
		delete(k.held, id)
		return false
	}
	return taken
}

// release gives a key back.
func (k *keyLocks) release(id driver.RecordID, by lockHolder) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.held[id] == by {
		delete(k.held, id)
	}
}

// releaseAll gives back the keys of a transaction.
func (k *keyLocks) releaseAll(tx *openTx) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, id := range tx.keys {
		if k.held[id] == lockHolder(tx) {
			delete(k.held, id)
		}
	}
	tx.keys = nil
}
