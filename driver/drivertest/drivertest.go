// Package drivertest is the conformance suite for implementations of [driver.Store]. The author of a store runs it with
// three lines:
//
//	func TestConformance(t *testing.T) {
//		drivertest.Run(t, newHarness, drivertest.Capabilities{MaxResult: 1 << 20})
//	}
//
// Tests are named after the rules of the project's design that they check, such as
// "Rule03/TokenGrowsAcrossRelease". The suite uses only the store's interface, directly and through the engine. It
// repeats, delays and interrupts calls, compares the store with [driver.Decide] and with the functions of package
// transition, and checks histories of concurrent runs. [RunWithBugs] also plants known bugs into the store; a named
// test must find each of them. [RunTx] tests the transactions of a [driver.TxStore].
//
// Generated cases come from pgregory.net/rapid: its flags (-rapid.checks, -rapid.seed) apply. With -short the suite
// runs a fifth of them, and for a store with [Capabilities].Variant only the checks of its calls.
//
// Time is the store's clock. The suite moves it by [Harness].Advance. Without Advance, the suite uses leases and
// lifetimes of milliseconds and waits until the store's clock has passed them.
package drivertest

import (
	"slices"
	"testing"
	"time"

	"github.com/everonce/everonce/driver"
)

// Factory returns a new, empty store for one test. It is called a few hundred times, from tests that run in
// parallel, and frees its resources with t.Cleanup. If the server is missing, it fails the test: a skipped
// conformance run proves nothing.
type Factory func(t testing.TB) Harness

// Harness is a store under test, and the functions by which the suite controls it.
type Harness struct {
	Store driver.Store
	// Peer, if set, is a second handle on the same records, as another process would have it. Default: Store.
	Peer driver.Store
	// Advance moves the store's clock, also backwards. It is nil if the clock cannot be moved: Rule02/CallersAnHourOff
	// then logs that it proves nothing.
	Advance func(time.Duration)
	// Newer sets the format of an existing record to driver.FormatVersion + 1, as a newer version writes it. If it is nil,
	// the checks of NewerVersion log that they prove nothing.
	Newer func(driver.RecordID)

	// Damages are functions, by name, that damage the state or another field of an existing record, so that it has
	// contents that no version writes. DamagedLease damages the lease of a claim, so that its end cannot be read.
	// If they are empty, the checks of Damage log that they prove nothing.
	Damages      map[string]func(driver.RecordID)
	DamagedLease func(driver.RecordID)

	// UnreadStep makes an existing step of the record unreadable, with an empty result. If it is nil,
	// Rule18/AStepThatCanNotBeReadIsUnknown logs that it proves nothing.
	UnreadStep func(id driver.RecordID, name string)
	// UnreadResult changes only the kind of the result of such a step: to a number that is not a kind, or to 0 for no
	// result. It is nil if UnreadStep is.
	UnreadResult func(id driver.RecordID, name string, kind int)

	tx   any                               // a TxHarness, in RunTx
	over func(s driver.Store) driver.Store // puts a planted bug over a store that a check has made
}

// Capabilities declare what a store can do. The suite tests what is declared, and fails if the store has an optional
// power that is not declared or lacks one that is.
type Capabilities struct {
	// Lister, ScopeDeleter, HealthChecker, WriteChecker, IdentityKeeper, Recaller and ChangeWaiter declare that the store
	// implements the interface of that name. The suite tests driver.IdentityReader if an IdentityKeeper implements it.
	Lister         bool
	ScopeDeleter   bool
	HealthChecker  bool
	WriteChecker   bool
	IdentityKeeper bool
	Recaller       bool
	ChangeWaiter   bool
	// RemovesByItself declares that the store removes records that are gone without Purge, for example by a TTL. Purge may
	// then count fewer records, or none.
	RemovesByItself bool
	// MaxResult is the largest result, in bytes, that the store accepts. The suite stores one of that size, up to 16 MiB.
	// Required.
	MaxResult int
	// RefusesLarger declares that the store returns driver.ErrTooLarge for a result of MaxResult + 1 bytes.
	RefusesLarger bool
	// TxBatch declares, for RunTx, that the store's transactions implement driver.TxBatch.
	TxBatch bool
	// OneWriter declares, for RunTx, that only one transaction is open at a time, as in SQLite: a second one waits until
	// the first has ended, unless it claims the same key.
	OneWriter bool
	// NoSavepoints declares, for RunTx, that the first error ends a transaction, as in MongoDB. That includes the error of
	// a claim that conflicts with another transaction, so a claim in the caller's transaction need not exclude others: one
	// of the two completes.
	NoSavepoints bool
	// DecidesAtCommit declares, for RunTx, that a claim in a transaction keeps no others out, as in DynamoDB, where
	// a transaction is sent as a whole: of several that have claimed a key, one commit succeeds, and the others
	// return driver.ErrConflict.
	DecidesAtCommit bool
	// DuplicateWaits is, for RunTx, the longest time that the claim of a key held by an open transaction may wait inside
	// the store. Default 0: it does not wait.
	DuplicateWaits time.Duration
	// BusyThoughDone declares, for RunTx, that a duplicate may get DecideInProgress although there is a result,
	// while other duplicates read it: at an isolation level at which a read locks. Nothing else may differ.
	BusyThoughDone bool
	// Variant declares that the suite also runs on this store with other options, through another driver or on
	// another server. With -short, Run then leaves out the checks through the engine, the checks with many
	// generated calls, and the planted bugs. RunTx leaves out the planted bugs, the crashes and the engine's
	// batches.
	Variant bool
	// Callers is the number of concurrent callers in the tests of contention. Default 64.
	Callers int
}

func (c Capabilities) withDefaults() Capabilities {
	if c.Callers == 0 {
		c.Callers = 64
	}
	return c
}

// isBrief reports whether to skip the checks that another run of the suite makes on this store.
func (c Capabilities) isBrief() bool { return c.Variant && testing.Short() }

// check is one test of the suite: a function of a harness, so that it can also be run against a store with
// a planted bug and be watched failing.
type check struct {
	name string // "Rule03/TokenGrowsAcrossRelease"
	run  func(e *env)
	// needs reports whether a store has the power that the check tests; nil if it needs none.
	needs func(c Capabilities) bool
}

// Run tests a store.
func Run(t *testing.T, factory Factory, caps Capabilities) {
	t.Helper()
	runChecks(t, factory, caps.required(t), caps.checks())
}

// RunWithBugs is [Run], and then plants known bugs into the store. A test must find each of them, so this tests the
// tests. It prints a table of the bugs, and doubles the time.
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
		t.Fatal("drivertest: Capabilities.MaxResult is required: the largest result, in bytes, that the store accepts")
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
