// Package doomed remembers which transactions of this process did not survive an error.
package doomed

import (
	"errors"
	"reflect"
	"sync"
	"sync/atomic"
)

// Set records which transactions did not survive an error, so that nothing more is written through them or
// committed: on some databases the next statement would be committed on its own.
//
// A transaction that calls of this package are inside has an entry, which is never dropped. A transaction that
// everonce began is forgotten at its end. A caller's transaction may come back with the next call, so the latest
// few doomed ones are remembered. A caller that keeps using one for longer has ignored ErrTxDoomed.
type Set struct {
	mu     sync.Mutex
	inside map[any]*Tx
	left   [256]any // doomed transactions of callers that no call is inside
	n      int
}

// Tx is a transaction that calls of this package are inside.
type Tx struct {
	tx    any  // nil if it is not comparable: DoTx rejects it
	own   bool // everonce began it
	calls int  // guarded by the set's lock
	dead  atomic.Bool
	cause atomic.Pointer[error]
}

// Doom says that the transaction did not survive, and why.
func (o *Tx) Doom(cause error) {
	o.cause.CompareAndSwap(nil, &cause)
	o.dead.Store(true)
}

// Why returns the cause, if one of the calls that are inside doomed the transaction, else nil.
func (o *Tx) Why() error {
	if cause := o.cause.Load(); cause != nil {
		return *cause
	}
	return nil
}

// With returns the error of work in the transaction, joined with the reason why it is doomed, if the work dropped
// that.
func (o *Tx) With(err error) error {
	if why := o.Why(); why != nil && !errors.Is(err, why) {
		return errors.Join(err, why)
	}
	return err
}

// Doomed reports whether the transaction did not survive.
func (o *Tx) Doomed() bool { return o.dead.Load() }

// Enter registers a call inside a transaction. Each call must end with Leave.
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

// remembers reports whether a transaction was doomed when the last call left it. The caller must hold d.mu.
func (d *Set) remembers(tx any) bool {
	for i := range min(d.n, len(d.left)) {
		if d.left[i] == tx {
			return true
		}
	}
	return false
}
