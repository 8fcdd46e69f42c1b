package everonce

import "sync"

// doomed are the transactions of this process that did not survive an error, whichever receiver met it.
var doomed doomedSet

// doomedSet remembers transactions that did not survive an error, so that nothing more is written through
// them, nor committed: on some databases the next statement would commit by itself. It remembers
// the latest few; whoever ignores ErrTxDoomed for longer holds a handle that its own driver refuses.
type doomedSet struct {
	mu  sync.Mutex
	txs [256]any
	n   int
}

func (d *doomedSet) add(tx any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.txs[d.n%len(d.txs)] = tx
	d.n++
}

func (d *doomedSet) has(tx any) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	for i := range min(d.n, len(d.txs)) {
		if d.txs[i] == tx {
			return true
		}
	}
	return false
}
