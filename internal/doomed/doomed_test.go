package doomed

import "testing"

// doom enters a transaction, dooms it, and leaves it.
func (d *Set) doom(tx any, own bool) {
	o := d.Enter(tx, own)
	o.dead.Store(true)
	d.Leave(o)
}

// isDoomed reports whether a caller's transaction is doomed to a call that enters it.
func (d *Set) isDoomed(tx any) bool {
	o := d.Enter(tx, false)
	defer d.Leave(o)
	return o.Doomed()
}

// Of callers' transactions that no call is inside, the latest doomed ones are remembered, each of them, and no more
// than there is room for. To be asked about does not cost another its place.
func TestDoomedSet(t *testing.T) {
	var d Set
	txs := make([]*int, 2*len(d.left))
	for i := range txs {
		txs[i] = new(int)
		if d.isDoomed(txs[i]) {
			t.Fatalf("transaction %d is doomed before it was", i)
		}
		d.doom(txs[i], false)
		for k := max(0, i+1-len(d.left)); k <= i; k++ {
			if !d.isDoomed(txs[k]) {
				t.Fatalf("transaction %d is forgotten after %d", k, i)
			}
		}
	}
	latest := txs[len(d.left):]
	for range d.left {
		d.isDoomed(latest[0])
	}
	for i, tx := range latest {
		if !d.isDoomed(tx) {
			t.Fatalf("transaction %d is forgotten because another was asked about", i)
		}
	}
	if d.isDoomed(txs[0]) {
		t.Error("more is remembered than there is room for")
	}
	if len(d.inside) != 0 {
		t.Errorf("%d transactions are left without a call inside", len(d.inside))
	}
}

// While a call is inside a transaction nothing pushes its mark out, nor does another call take it away by leaving.
func TestDoomedSetKeepsOpenTransactions(t *testing.T) {
	for name, own := range map[string]bool{"everonce's": true, "the caller's": false} {
		t.Run(name, func(t *testing.T) {
			var d Set
			tx := new(int)
			outer := d.Enter(tx, own)
			d.doom(tx, false)
			for range 2 * len(d.left) {
				d.doom(new(int), false)
			}
			if !outer.Doomed() || !d.isDoomed(tx) {
				t.Error("the mark of a transaction is gone that a call is inside")
			}
			d.Leave(outer)
			if d.isDoomed(tx) == own {
				t.Errorf("remembered after its end: %v, want only a caller's transaction", !own)
			}
			if len(d.inside) != 0 {
				t.Errorf("%d transactions are left without a call inside", len(d.inside))
			}
		})
	}
}

// Handles that cannot be compared are rejected by DoTx, and so are never doomed.
func TestDoomedSetOfIncomparableHandles(t *testing.T) {
	var d Set
	for _, tx := range []any{nil, []int{1}, struct{ v any }{[]int{1}}} {
		d.doom(tx, true)
		if d.isDoomed(tx) {
			t.Errorf("%v is doomed", tx)
		}
	}
}
