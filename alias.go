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
	// DeleteScopeRequest is the request of a store's DeleteScope, which forgets a tenant.
	DeleteScopeRequest = driver.DeleteScopeRequest
)

const (
	// StateReleased: an attempt ended, and the next delivery runs.
	StateReleased = driver.StateReleased
	// StateAbandoned: an attempt ended in the unknown.
	StateAbandoned = driver.StateAbandoned
	// ResultFailure is the [Error.Kind] of an operation that was refused for good.
	ResultFailure = driver.ResultFailure
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
