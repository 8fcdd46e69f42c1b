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
