package everonce

import "testing"

// The latest doomed transactions are remembered, each of them, and no more than there is room for.
func TestDoomedSet(t *testing.T) {
	var d doomedSet
	txs := make([]*int, 2*len(d.txs))
	for i := range txs {
		txs[i] = new(int)
		if d.has(txs[i]) {
			t.Fatalf("transaction %d is doomed before it was added", i)
		}
		d.add(txs[i])
		for k := max(0, i+1-len(d.txs)); k <= i; k++ {
			if !d.has(txs[k]) {
				t.Fatalf("transaction %d is forgotten after %d", k, i)
			}
		}
	}
}
