// Package everonce is the receiver's half of at-least-once delivery: however many times an operation arrives, it takes
// effect once.
//
// HTTP clients retry, brokers redeliver, sagas retry. A receiver that must not charge twice names each operation by a
// [Key] that the sender repeats, and runs it through [Do], or through [Transact] or [DoTx] if the effect is in the
// database:
//
//	r, err := everonce.NewReceiver(store, everonce.Refuse, nil)
//	…
//	res, err := everonce.Do(ctx, r, key, func(ctx context.Context, a *everonce.Attempt) (Receipt, error) {
//		return gateway.Charge(ctx, amount, a.DownstreamKey("charge"))
//	}, everonce.FingerprintOf(amount, currency))
//
// # Guarantees
//
// Transactional ([Transact], [DoTx], [StepTx]): the effect is in the record's database, and both commit together:
// exactly once, whatever crashes, as long as the database keeps what it committed.
//
// Guarded ([Do], [Step]): the effect is anywhere else. Two attempts never run at once while leases hold, and a
// finished attempt is never repeated. If it is unknown whether an attempt took effect, because its process died or
// its error does not say, the application's [Policy] decides.
//
// Both hold for [Lifetime.Total] after the last write; afterwards the key is new. A key made anew for each try protects
// nothing.
//
// Package driver is the contract for writing a store. The names that an application needs are also in this package.
package everonce

import (
	"time"

	"github.com/everonce/everonce/driver"
)

// The names of package driver that applications write.
type (
	// Store keeps the records: see the packages in store/….
	Store = driver.Store
	// Scope is the part of a [Key] that says who and what. Build it with [ScopeOf].
	Scope = driver.Scope
	// RecordID identifies a key's record in a store. Logs show RecordID.Short instead of the key.
	RecordID = driver.RecordID
	// Lifetime says how long a finished operation is remembered.
	Lifetime = driver.Lifetime
	// State is the state of a record.
	State = driver.State
	// StepRecord is what the record keeps of a step: see [Attempt.Steps].
	StepRecord = driver.StepRecord
	// ListRequest selects records of a scope for a store's List.
	ListRequest = driver.ListRequest
	// DeleteScopeRequest names the scope for a store's DeleteScope.
	DeleteScopeRequest = driver.DeleteScopeRequest
	// HealthRequest is the request of a store's Health.
	HealthRequest = driver.HealthRequest
)

// The states of a record that an application acts on.
const (
	// StateReleased: the attempt ended, and the next delivery runs.
	StateReleased = driver.StateReleased
	// StateAbandoned: the attempt ended in the unknown.
	StateAbandoned = driver.StateAbandoned
)

// The states of a step.
const (
	// StepOpen: the step has begun, and is not known to have ended.
	StepOpen = driver.StepOpen
	// StepDone: the step has ended, and its result is saved.
	StepDone = driver.StepDone
	// StepNotDone: the step has ended without an effect.
	StepNotDone = driver.StepNotDone
)

// ScopeOf joins parts, such as a tenant and a route, so that no two lists of parts give the same scope.
func ScopeOf(parts ...string) Scope { return driver.ScopeOf(parts...) }

// ForWeb returns the default lifetime, for people and their clients: kept for a day, remembered for another.
func ForWeb() Lifetime { return Lifetime{Retention: 24 * time.Hour, Remember: 24 * time.Hour} }

// ForQueue returns the lifetime for messages and their dead letters: kept for 7 days, remembered for another 7.
func ForQueue() Lifetime {
	return Lifetime{Retention: 7 * 24 * time.Hour, Remember: 7 * 24 * time.Hour}
}

// ForFinance returns the lifetime for money: kept for 90 days, remembered until a year has passed.
func ForFinance() Lifetime {
	return Lifetime{Retention: 90 * 24 * time.Hour, Remember: 275 * 24 * time.Hour}
}
