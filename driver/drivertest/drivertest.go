// Package drivertest is the conformance suite that every [everonce.Store] passes. Whoever writes a store
// runs it with three lines:
//
//	func TestConformance(t *testing.T) {
//		drivertest.Run(t, newHarness, drivertest.Capabilities{MaxResult: 1 << 20})
//	}
//
// The suite holds the store to the rules of the project's design, and names its tests by them:
// "Rule03/TokenGrowsAcrossRelease". It drives the store through its interface alone, by itself and
// through the engine, with calls that repeat, come late, fail halfway or never return; compares it with
// [driver.Decide] and with the pure functions of package transition; checks histories of concurrent
// runs. [RunWithBugs] then plants known bugs into it, each of which must make a named test fail. [RunTx] adds
// what a store with transactions must keep.
//
// Generated cases come from pgregory.net/rapid: its flags (-rapid.checks, -rapid.seed) apply. With -short there are a
// fifth of them, and a store that [Capabilities].Variant declares passes the checks of its own calls alone.
//
// Time is the store's. Where its clock can be moved, [Harness].Advance moves it; elsewhere the suite
// uses leases and lifetimes of milliseconds and waits until the store's own clock has passed them.
package drivertest

import (
	"slices"
	"testing"
	"time"

	"github.com/everonce/everonce/driver"
)

// Factory makes a store for one test, which nobody else uses and which holds nothing. It is called a few hundred
// times, from tests that run in parallel, and frees what it took through t.Cleanup. If the server is missing, it
// fails the test: a conformance run that skips proves nothing.
type Factory func(t testing.TB) Harness

// Harness is a store under test, and what the suite needs to control it.
type Harness struct {
	Store driver.Store
	// Peer, if set, is a second handle on the same records, as another process has it. Default: Store.
	Peer driver.Store
	// Advance moves the store's clock, also backwards. It is nil if the clock cannot be moved; then
	// Rule02/CallersAnHourOff has no clock that is off, and logs so.
	Advance func(time.Duration)
	// Newer turns an existing record into one that a newer version has written, of everonce.FormatVersion + 1. It is
	// nil if nothing can do that; then the checks of NewerVersion prove nothing, and log so.
	Newer func(driver.RecordID)

	// Damages are ways to damage an existing record, by their names, each so that no version has written it: its state and others. DamagedLease damages
	// the lease of a claim, so that nobody can tell when it is over. They are empty if nothing can do that; then the checks of Damage prove nothing, and log so.
	Damages      map[string]func(driver.RecordID)
	DamagedLease func(driver.RecordID)

	// UnreadStep turns an existing step of the record into one that nobody can read, with nothing about it in its
	// result. It is nil if nothing can do that; then Rule18/AStepThatCanNotBeReadIsUnknown proves nothing, and logs
	// so.
	UnreadStep func(id driver.RecordID, name string)
	// UnreadResult gives the result of such a step another kind, by its number, and changes nothing else: a kind that
	// does not exist, or 0 for none. It is nil as above.
	UnreadResult func(id driver.RecordID, name string, kind int)

	tx   any                               // a TxHarness, in RunTx
	over func(s driver.Store) driver.Store // puts a planted bug over a store that a check has made
}

// Capabilities declare what a store can do. What is declared is tested. It is a failure if the store has a power that
// is not declared, or lacks one that is.
type Capabilities struct {
	// Lister, ScopeDeleter, HealthChecker, WriteChecker, IdentityKeeper, Recaller and ChangeWaiter: the store implements the
	// interface of that name. An IdentityKeeper that is an everonce.IdentityReader too is tested as one.
	Lister         bool
	ScopeDeleter   bool
	HealthChecker  bool
	WriteChecker   bool
	IdentityKeeper bool
	Recaller       bool
	ChangeWaiter   bool
	// RemovesByItself declares that the store itself removes what is gone by time, for example by a TTL: Purge may
	// find less than there was, and count nothing.
	RemovesByItself bool
	// MaxResult is the largest result, in bytes, that the store takes. The suite stores one of that size, up to 16
	// MiB. Required.
	MaxResult int
	// RefusesLarger declares that a result of MaxResult + 1 bytes is refused with everonce.ErrTooLarge.
	RefusesLarger bool
	// TxBatch declares, for RunTx, that the store's transactions implement everonce.TxBatch.
	TxBatch bool
	// OneWriter declares, for RunTx, that the store's transactions exclude each other, as on SQLite: a second one
	// waits until the first has ended, unless it claims the same key.
	OneWriter bool
	// NoSavepoints declares, for RunTx, that the first error ends a transaction, as in MongoDB. That includes the
	// error of a claim that meets another transaction, so a claim in a transaction of the caller's need not exclude
	// others: of two, one completes.
	NoSavepoints bool
	// DuplicateWaits is, for RunTx, how long the claim of a key that an open transaction holds may wait inside the
	// store before it is answered. Default 0: never.
	DuplicateWaits time.Duration
	// Variant declares that the suite also runs on this store with other options, through another driver or on another server. With
	// -short, Run then leaves out the checks through the engine, those of many generated calls, and the planted bugs; RunTx, the
	// planted bugs, the crashes and the engine's batches.
	Variant bool
	// Callers is how many callers start at once in the tests of contention. Default 64.
	Callers int
}

func (c Capabilities) withDefaults() Capabilities {
	if c.Callers == 0 {
		c.Callers = 64
	}
	return c
}

// isBrief reports whether what another run of the suite has shown of this store is left out.
func (c Capabilities) isBrief() bool { return c.Variant && testing.Short() }

// check is one test of the suite: a function of a harness, so that it can also be run against a store with
// a planted bug and be watched failing.
type check struct {
	name string // "Rule03/TokenGrowsAcrossRelease"
	run  func(e *env)
	// needs reports whether a store has the power that the check is of; nil where it needs none.
	needs func(c Capabilities) bool
}

// Run tests a store, rule by rule.
func Run(t *testing.T, factory Factory, caps Capabilities) {
	t.Helper()
	runChecks(t, factory, caps.required(t), caps.checks())
}

// RunWithBugs is [Run], and then plants known bugs into the store, each of which one of the tests must find: it tests the
// tests. It prints a table of the bugs, and takes about as long again.
func RunWithBugs(t *testing.T, factory Factory, caps Capabilities) {
	t.Helper()
	Run(t, factory, caps)
	if caps = caps.required(t); !caps.isBrief() {
		runBugs(t, factory, caps, storeChecks(), allBugs())
	}
}

func (c Capabilities) required(t *testing.T) Capabilities {
	t.Helper()
	if c.MaxResult <= 0 {
		t.Fatal("drivertest: Capabilities.MaxResult is required: the largest result, in bytes, that the store takes")
	}
	return c.withDefaults()
}

func (c Capabilities) checks() []check {
	if c.isBrief() {
		return callChecks()
	}
	return storeChecks()
}

func runChecks(t *testing.T, factory Factory, caps Capabilities, checks []check) {
	t.Helper()
	checks = slices.DeleteFunc(slices.Clone(checks), func(c check) bool { return c.needs != nil && !c.needs(caps) })
	groups, byGroup := groupsOf(checks)
	for _, group := range groups {
		t.Run(group, func(t *testing.T) {
			t.Parallel()
			for _, c := range byGroup[group] {
				t.Run(leaf(c.name), func(t *testing.T) {
					t.Parallel()
					c.run(newEnv(t, factory(t), caps))
				})
			}
		})
	}
}
