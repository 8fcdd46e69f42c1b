package everonce

import (
	"errors"
	"reflect"
	"sync"
	"sync/atomic"
)

// doomed are the transactions of this process that did not survive an error, whichever receiver met it.
var doomed doomedSet

// doomedSet knows which transactions did not survive an error, so that nothing more is written through
// them, nor committed: on some databases the next statement would commit by itself.
//
// A transaction that calls of this package are inside has an entry of its own, which nothing pushes out. One that everonce
// began is forgotten with it. A caller's own may come back with the next call: the latest few that are doomed are remembered.
// Whoever goes on with one for longer than that has been told by ErrTxDoomed, and has not rolled it back.
type doomedSet struct {
	mu     sync.Mutex
	inside map[any]*openTx
	left   [256]any // callers' own that are doomed, and that no call is inside
	n      int
}

// openTx is a transaction that calls of this package are inside.
type openTx struct {
	tx     any  // nil where it cannot be told apart from others: no DoTx takes it
	own    bool // everonce began it
	calls  int  // the set is locked
	doomed atomic.Bool
	cause  atomic.Pointer[error]
}

// doom says that the transaction did not survive, and why.
func (o *openTx) doom(cause error) {
	o.cause.CompareAndSwap(nil, &cause)
	o.doomed.Store(true)
}

// why is the cause, where it was one of the calls that are inside.
func (o *openTx) why() error {
	if cause := o.cause.Load(); cause != nil {
		return *cause
	}
	return nil
}

// with returns the error of work in the transaction, and why that is doomed, whatever the work has made of it.
func (o *openTx) with(err error) error {
	if why := o.why(); why != nil && !errors.Is(err, why) {
		return errors.Join(err, why)
	}
	return err
}

// enter is a call's first look at a transaction. Each call leaves it again.
func (d *doomedSet) enter(tx any, own bool) *openTx {
	if tx == nil || !reflect.ValueOf(tx).Comparable() {
		return new(openTx)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	o := d.inside[tx]
	if o == nil {
		o = &openTx{tx: tx, own: own}
		o.doomed.Store(!own && d.remembers(tx))
		if d.inside == nil {
			d.inside = make(map[any]*openTx)
		}
		d.inside[tx] = o
	}
	o.calls++
	return o
}

func (d *doomedSet) leave(o *openTx) {
	if o.tx == nil {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if o.calls--; o.calls > 0 {
		return
	}
	delete(d.inside, o.tx)
	if o.doomed.Load() && !o.own && !d.remembers(o.tx) {
		d.left[d.n%len(d.left)] = o.tx
		d.n++
	}
}

// remembers reports whether a transaction was doomed when the last call left it. The set is locked.
func (d *doomedSet) remembers(tx any) bool {
	for i := range min(d.n, len(d.left)) {
		if d.left[i] == tx {
			return true
		}
	}
	return false
}
