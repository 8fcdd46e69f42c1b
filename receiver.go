package everonce

import (
	"context"
	"errors"
	"fmt"
	"reflect"

	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/internal/probe"
	"github.com/everonce/everonce/internal/waiting"
)

// Receiver is a store and the policy for the unknown, for effects outside the database: see [Do]. It is safe for
// concurrent use; make one per process, with [NewReceiver].
type Receiver struct{ core }

// NewReceiver returns a receiver for guarded operations. The error wraps [ErrInvalidArgument].
func NewReceiver(store Store, policy Policy, opts *Options) (*Receiver, error) {
	if err := policy.validate(); err != nil {
		return nil, err
	}
	r := &Receiver{}
	if err := r.init(store, opts); err != nil {
		return nil, err
	}
	r.defaults.policy = policy
	r.quick = r.recaller != nil && r.set.Observer == nil && policy != Reconcile
	return r, nil
}

// TxReceiver is a store that shares its transactions with the application: see [Transact] and [DoTx]. It needs no
// policy, because what did not commit did not happen.
type TxReceiver[Tx any] struct {
	core
	txs driver.TxStore[Tx]
}

// NewTxReceiver returns a receiver for transactional operations. The error wraps [ErrInvalidArgument].
func NewTxReceiver[Tx any](store driver.TxStore[Tx], opts *Options) (*TxReceiver[Tx], error) {
	t := &TxReceiver[Tx]{txs: store}
	if err := t.init(store, opts); err != nil {
		return nil, err
	}
	return t, nil
}

func (t *TxReceiver[Tx]) runs() runs[Tx] { return runs[Tx]{txs: t.txs, set: t.set} }

// AnyReceiver is a [*Receiver] or a [*TxReceiver].
type AnyReceiver interface {
	Options() Options
	RecordID(key Key) RecordID
	receiver() *core
}

func (r *Receiver) receiver() *core { return &r.core }

func (t *TxReceiver[Tx]) receiver() *core { return &t.core }

// core is the part that both receivers share.
type core struct {
	store    Store
	set      *settings
	defaults call
	prompt   bool // the store's calls never block: they need no timeout
	recaller driver.Recaller
	watcher  driver.ChangeWaiter
	quick    bool // calls without options differ only in their keys
	identity identity
	hub      waiting.Hub
	left     leftClaims
	warnings warnings
}

func (r *core) init(store Store, opts *Options) error {
	if isNil(store) {
		return fmt.Errorf("%w: the store is nil", ErrInvalidArgument)
	}
	if !reflect.TypeOf(store).Comparable() {
		return fmt.Errorf("%w: a store must be a pointer, not a %T", ErrInvalidArgument, store)
	}
	set, err := opts.settings()
	if err != nil {
		return err
	}
	r.store, r.set = store, set
	if r.identity, err = newIdentity(store, set.IdentitySecret); err != nil {
		return err
	}
	if p, ok := store.(driver.Prompter); ok {
		r.prompt = p.Prompt() == store // otherwise it is the method of an embedded store, and the outer store may block
	}
	r.recaller, _ = driver.PowerOf[driver.Recaller](store)
	r.watcher, _ = driver.PowerOf[driver.ChangeWaiter](store)
	r.defaults = call{
		wait: set.Wait, lease: set.Lease, lifetime: set.Lifetime,
		effectsInSteps: set.EffectsInSteps, optimistic: set.Optimistic, codec: set.Codec, codecName: set.codecName,
	}
	return nil
}

func isNil(v any) bool {
	if v == nil {
		return true
	}
	rv := reflect.ValueOf(v)
	switch rv.Kind() {
	case reflect.Pointer, reflect.Map, reflect.Func, reflect.Interface, reflect.Chan, reflect.Slice:
		return rv.IsNil()
	}
	return false
}

// Store returns the store that the receiver was made with.
func (t *TxReceiver[Tx]) Store() driver.TxStore[Tx] { return t.txs }

// Guarded returns a receiver for guarded operations with the same store and options: for example for a [StepTx],
// which needs both.
func (t *TxReceiver[Tx]) Guarded(policy Policy) (*Receiver, error) {
	return NewReceiver(t.store, policy, &t.set.Options)
}

// Policy returns the receiver's policy.
func (r *Receiver) Policy() Policy { return r.defaults.policy }

// Options returns the receiver's options with their defaults, and without the identity secret.
func (r *Receiver) Options() Options { return r.options() }

// Options is [Receiver.Options].
func (t *TxReceiver[Tx]) Options() Options { return t.options() }

func (r *core) options() Options {
	o := r.set.Options
	o.IdentitySecret = nil
	return o
}

// RecordID returns the ID of the key's record in the receiver's store.
func (r *Receiver) RecordID(key Key) RecordID { return r.recordID(key) }

// RecordID is [Receiver.RecordID].
func (t *TxReceiver[Tx]) RecordID(key Key) RecordID { return t.recordID(key) }

func (r *core) recordID(key Key) RecordID { return key.recordID(r.set.IdentitySecret) }

// DownstreamKey returns what [Attempt.DownstreamKey] returns in attempts of key, to find an operation in the other
// side's ledger.
func (r *Receiver) DownstreamKey(key Key, name string) string {
	return downstreamKey(r.set.IdentitySecret, r.recordID(key), name)
}

// DownstreamKey is [Receiver.DownstreamKey].
func (t *TxReceiver[Tx]) DownstreamKey(key Key, name string) string {
	return downstreamKey(t.set.IdentitySecret, t.recordID(key), name)
}

// operation is one call of Do, Transact or DoTx.
type operation struct {
	*core
	call        *call // shared with other calls: read only
	fingerprint driver.Fingerprint
	key         Key
	id          RecordID
	place       *place       // the place of the call; nil outside other operations
	ev          *Observation // nil without an observer
	trace       string       // of an item of a batch
	resent      bool         // a claim was sent more than once
	waits       bool         // it waits for another attempt
}

// prepare checks the call and makes it an operation. id is the key's, or zero if it is not known yet.
func (r *core) prepare(ctx context.Context, key Key, id RecordID, opts []CallOption, allowed optionSet) (operation, error) {
	op := operation{core: r, key: key, id: id}
	var err error
	if op.call, op.fingerprint, err = r.callFor(opts, allowed); err != nil {
		return op, &Error{Outcome: Invalid, Sentinel: err}
	}
	if err = key.Validate(); err != nil {
		return op, &Error{Outcome: Invalid, Sentinel: err}
	}
	if op.id == (RecordID{}) {
		op.id = r.recordID(key)
	}
	op.place = placeOf(ctx)
	return op, nil
}

// Ready binds the store to the identity secret, or to none, as the first Do or Transact does. Call it at start-up to
// learn of a wrong secret ([ErrIdentity]) or missing tables ([ErrSchema]), and before the first DoTx or Lookup
// on a new store. Every error wraps [ErrStore].
func (r *Receiver) Ready(ctx context.Context) error { return r.bind(ctx) }

// Ready is [Receiver.Ready].
func (t *TxReceiver[Tx]) Ready(ctx context.Context) error { return t.bind(ctx) }

func (r *core) bind(ctx context.Context) error {
	op := operation{core: r}
	return op.ready(ctx)
}

// checkIdentity makes sure that the store is not bound to another secret, without binding it. It is for calls whose
// write could wait for the caller's own transaction, and for calls that must not write.
func (op *operation) checkIdentity(ctx context.Context) error {
	if op.identity.done.Load() {
		return nil
	}
	one, cancel := context.WithTimeout(ctx, op.set.StoreTimeout)
	defer cancel()
	switch bound, err := op.identity.compare(one); {
	case err != nil:
		return op.storeFailed(ctx, err)
	case !bound && len(op.set.IdentitySecret) > 0:
		return op.fail(StoreFailed, ErrStore, fmt.Errorf("%w: the store is not bound to a secret yet (call Ready first)", ErrIdentity))
	}
	return nil
}

// ready is Ready, once.
func (op *operation) ready(ctx context.Context) error {
	if op.identity.done.Load() {
		return nil
	}
	one, cancel := context.WithTimeout(ctx, op.set.StoreTimeout)
	defer cancel()
	if err := op.identity.keep(one); err != nil {
		return op.storeFailed(ctx, err)
	}
	return nil
}

// storeFailed returns the error of a call whose store failed before anything ran.
func (op *operation) storeFailed(ctx context.Context, err error) *Error {
	if ctx.Err() != nil {
		return op.callerGone(ctx, err)
	}
	return op.fail(StoreFailed, ErrStore, err)
}

// callerGone returns the error of a call whose context ended before anything took effect. That is not the store's
// failure, even if the store reported it as one. A call that waited gets the same error whether or not it was the
// one that was asking the store.
func (op *operation) callerGone(ctx context.Context, said error) *Error {
	if op.waits {
		return op.fail(InProgress, ErrInProgress, context.Cause(ctx))
	}
	if said != nil {
		said = notOfStore{said}
	}
	return op.fail(Failed, context.Cause(ctx), said)
}

// notOfStore is an error that no longer is ErrStore.
type notOfStore struct{ error }

func (e notOfStore) Is(target error) bool { return target != ErrStore && errors.Is(e.error, target) }
func (e notOfStore) As(target any) bool   { return errors.As(e.error, target) }

func (op *operation) fail(o Outcome, sentinel, cause error) *Error {
	e := &Error{Outcome: o, Sentinel: sentinel, Cause: cause}
	if op.id != (RecordID{}) { // Ready and InTx concern no key
		e.KeyHash = op.id.Short()
	}
	return e
}

// The engine's tests can count what a receiver still holds.
func init() {
	probe.Receiver = func(r any) probe.Held {
		callers, keys := r.(AnyReceiver).receiver().hub.Held()
		return probe.Held{Callers: callers, Keys: keys}
	}
}
