// Package doomed remembers which transactions of this process did not survive an error.
package doomed

import (
	"errors"
	"reflect"
	"sync"
	"sync/atomic"
)

// Set knows which transactions did not survive an error, so that nothing more is written through
// them, nor committed: on some databases the next statement would commit by itself.
//
// A transaction that calls of this package are inside has an entry of its own, which nothing pushes out. One that everonce
// began is forgotten with it. A caller's own may come back with the next call: the latest few that are doomed are remembered.
// Whoever goes on with one for longer than that has been told by ErrTxDoomed, and has not rolled it back.
type Set struct {
	mu     sync.Mutex
	inside map[any]*Tx
	left   [256]any // callers' own that are doomed, and that no call is inside
	n      int
}

// Tx is a transaction that calls of this package are inside.
type Tx struct {
	tx    any  // nil where it cannot be told apart from others: no DoTx takes it
	own   bool // everonce began it
	calls int  // the set is locked
	dead  atomic.Bool
	cause atomic.Pointer[error]
}

// Doom says that the transaction did not survive, and why.
func (o *Tx) Doom(cause error) {
	o.cause.CompareAndSwap(nil, &cause)
	o.dead.Store(true)
}

// Why is the cause, where it was one of the calls that are inside.
func (o *Tx) Why() error {
	if cause := o.cause.Load(); cause != nil {
		return *cause
	}
	return nil
}

// With returns the error of work in the transaction, and why that is doomed, whatever the work has made of it.
func (o *Tx) With(err error) error {
	if why := o.Why(); why != nil && !errors.Is(err, why) {
		return errors.Join(err, why)
	}
	return err
}

// Doomed reports whether the transaction did not survive.
func (o *Tx) Doomed() bool { return o.dead.Load() }

// Enter is a call's first look at a transaction. Each call leaves it again.
func (d *Set) Enter(tx any, own bool) *Tx {
	if tx == nil || !reflect.ValueOf(tx).Comparable() {
		return new(Tx)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	o := d.inside[tx]
	if o == nil {
		o = &Tx{tx: tx, own: own}
		o.dead.Store(!own && d.remembers(tx))
		if d.inside == nil {
			d.inside = make(map[any]*Tx)
		}
		d.inside[tx] = o
	}
	o.calls++
	return o
}

// Leave ends what Enter began.
func (d *Set) Leave(o *Tx) {
	if o.tx == nil {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if o.calls--; o.calls > 0 {
		return
	}
	delete(d.inside, o.tx)
	if o.dead.Load() && !o.own && !d.remembers(o.tx) {
		d.left[d.n%len(d.left)] = o.tx
		d.n++
	}
}

// remembers reports whether a transaction was doomed when the last call left it. The set is locked.
func (d *Set) remembers(tx any) bool {
	for i := range min(d.n, len(d.left)) {
		if d.left[i] == tx {
			return true
		}
	}
	return false
}
