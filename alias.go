package everonce

import "github.com/everonce/everonce/driver"

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
	// PurgeResult counts what a janitor's round has removed.
	PurgeResult = driver.PurgeResult
)

// ScopeOf joins parts, such as a tenant and a route, so that no two lists of parts give the same scope.
func ScopeOf(parts ...string) Scope { return driver.ScopeOf(parts...) }
