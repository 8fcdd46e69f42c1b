// Package everonce is the receiver's half of at-least-once delivery: however many times an operation
// arrives, it takes effect once.
//
// Every reliable channel delivers more than once: HTTP clients retry, brokers redeliver, RPC frameworks
// and sagas retry. A receiver that must not charge twice names each operation by a [Key] that the sender
// repeats, and runs it through [Do], or through [Transact] or [DoTx] if the effect is in the database:
//
//	r, err := everonce.NewReceiver(store, everonce.Refuse, nil)
//	…
//	res, err := everonce.Do(ctx, r, key, func(ctx context.Context, a *everonce.Attempt) (Receipt, error) {
//		return gateway.Charge(ctx, amount, a.DownstreamKey("charge"))
//	}, everonce.FingerprintOf(amount, currency))
//
// # What is guaranteed, in which mode
//
// Transactional ([Transact], [DoTx], [StepTx]): the effect is in the same database as the record, and both commit
// together. Exactly once, whatever crashes, as long as the database keeps what it committed.
//
// Guarded ([Do], [Step]): the effect is anywhere else. Never two attempts at once while leases hold; a
// finished attempt is never repeated; an attempt whose outcome is unknown, because its process died or its
// error does not tell, is settled by the [Policy] that the application had to choose.
//
// Both promises hold for [Lifetime.Total] after the last write. Afterwards the key is new.
//
// # What is not guaranteed
//
// A key that is made anew for each try protects nothing. And no library knows whether a call that got no answer
// took hold: everonce says "unknown" ([ErrOutcomeUnknown]) where others run it again. An operation that is
// idempotent by itself needs no record at all.
//
// # Where to read
//
// Applications: [Do], [Transact], [TransactBatch], [DoTx], [Step], [StepTx], [Policy], [Options], [Lifetime], [Outcome], the errors,
// [Receiver.Settle], [LogObserver], [JoinObservers].
//
// Adapters and tools: [AttemptFrom], [Lookup], [TxReceiver.InTx], [Error], [Observer], [Codec], [WithSummary], [Settle], [PowerOf].
//
// Writers of stores: [Store], [TxStore], [Decide], [Record], the requests and results, and the optional
// powers [Lister], [ScopeDeleter], [HealthChecker], [WriteChecker], [IdentityKeeper], [IdentityReader], [Recaller], [ChangeWaiter],
// [TxBatch].
//
// The stores are in store/…. To write one of your own, implement [Store] and run the suite in store/drivertest.
package everonce

import (
	"time"

	"github.com/everonce/everonce/driver"
)

// The names of package driver that applications write.
type (
	// Store keeps the records: see the packages in store/…, and driver.Store for its methods.
	Store = driver.Store
	// Scope is the part of a [Key] that says who and what. Build it with [ScopeOf].
	Scope = driver.Scope
	// RecordID identifies a key's record in a store. RecordID.Short is what logs show instead of the key.
	RecordID = driver.RecordID
	// Lifetime says how long a finished operation is remembered.
	Lifetime = driver.Lifetime
	// State is where a record stands in its life.
	State = driver.State
	// ListRequest is the request of a store's List: the records of a scope, of some states.
	ListRequest = driver.ListRequest
)

const (
	// StateReleased: an attempt ended, and the next delivery runs.
	StateReleased = driver.StateReleased
	// StateAbandoned: an attempt ended in the unknown.
	StateAbandoned = driver.StateAbandoned
)

// ScopeOf joins parts, such as a tenant and a route, so that no two lists of parts give the same scope.
func ScopeOf(parts ...string) Scope { return driver.ScopeOf(parts...) }

// ForWeb returns the default lifetime, for answers to people and their clients: kept for a day, remembered for another.
func ForWeb() Lifetime { return Lifetime{Retention: 24 * time.Hour, Remember: 24 * time.Hour} }

// ForQueue returns the lifetime for messages and their dead letters: kept for 7 days, remembered for another 7.
func ForQueue() Lifetime {
	return Lifetime{Retention: 7 * 24 * time.Hour, Remember: 7 * 24 * time.Hour}
}

// ForFinance returns the lifetime for money: kept for 90 days, remembered until a year has passed.
func ForFinance() Lifetime {
	return Lifetime{Retention: 90 * 24 * time.Hour, Remember: 275 * 24 * time.Hour}
}
