package oncetest

import (
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// SeedVariable is the environment variable that replays a run: see Subject.Seed.
const SeedVariable = "EVERONCE_SEED"

// defaultLease is the default lease of everonce.Options.
const defaultLease = 30 * time.Second

// Run runs every test for which the subject has declared its capabilities, each under its own name, and logs the
// names of the others. The package comment describes the tests. If a system is not what its subject
// declares, the first test, DeclaredIsThere, fails and lists all that is wrong, and no other runs.
func Run(t *testing.T, subject Subject) {
	t.Helper()
	runAll(t, subject, func(name string, body func(testing.TB)) bool {
		return t.Run(name, func(t *testing.T) {
			if !subject.Bubble {
				body(t)
				return
			}
			synctest.Test(t, func(t *testing.T) { body(t) })
		})
	})
}

// declaredTest builds a system, and compares it with what the subject declares.
const declaredTest = "DeclaredIsThere"

// runAll runs the declared tests, each through run, which says whether it passed or was not asked for.
func runAll(tb testing.TB, subject Subject, run func(name string, body func(testing.TB)) bool) {
	tb.Helper()
	subject.check(tb)
	if !run(declaredTest, func(tb testing.TB) {
		tb.Helper()
		subject.compare(tb, subject.New(tb, &Faults{world: newWorld()}))
	}) {
		tb.Logf("oncetest: %s has failed: no other test was run", declaredTest)
		return
	}
	var notRun []string
	for _, tc := range tests {
		if lacks := tc.lacks(&subject); len(lacks) > 0 {
			notRun = append(notRun, tc.name+": "+strings.Join(lacks, ", "))
			continue
		}
		run(tc.name, func(tb testing.TB) {
			tb.Helper()
			tc.run(newTrial(tb, &subject, tc.name))
		})
	}
	if len(notRun) > 0 {
		tb.Logf("oncetest: %d of %d tests were not run, for want of what the subject has not declared:\n\t%s",
			len(notRun), len(tests), strings.Join(notRun, "\n\t"))
	}
}

// check completes a subject, and ends the test where it cannot be one.
func (s *Subject) check(tb testing.TB) {
	tb.Helper()
	switch {
	case s.New == nil:
		tb.Fatal("oncetest: Subject.New is required")
	case s.Mode < Transactional || s.Mode > Reconcile:
		tb.Fatal("oncetest: Subject.Mode is required: say what the system promises")
	case s.Lease < 0 || s.Redelivery < 0 || s.Operations < 0:
		tb.Fatal("oncetest: Subject.Lease, Subject.Redelivery or Subject.Operations is negative")
	case s.Capabilities.Settlement && s.Mode != Refuse:
		tb.Fatal("oncetest: Capabilities.Settlement is for the mode Refuse alone: nothing else leaves an unknown")
	}
	if s.Lease == 0 {
		s.Lease = defaultLease
	}
	if s.Operations == 0 {
		s.Operations = chaosOperations
	}
	if s.Seed == 0 {
		s.Seed = seedFrom(tb)
	}
}

// compare ends the test where a system is not what the subject declares, and says all that is wrong with it.
func (s *Subject) compare(tb testing.TB, sys System) {
	tb.Helper()
	if sys.Deliver == nil || sys.Effects == nil {
		tb.Fatal("oncetest: System.Deliver and System.Effects are required")
	}
	c := s.Capabilities
	as := true
	for _, f := range []struct {
		capability string
		declared   bool
		function   string
		given      bool
	}{
		{"Restarts", c.Restarts, "Restart", sys.Restart != nil},
		{"SideEffects", c.SideEffects, "SideEffects", sys.SideEffects != nil},
		{"Compensations", c.Compensations, "Compensate", sys.Compensate != nil},
		{"Compensations", c.Compensations, "Compensations", sys.Compensations != nil},
		{"Settlement", c.Settlement, "Settle", sys.Settle != nil},
	} {
		switch {
		case f.declared && !f.given:
			tb.Errorf("oncetest: Capabilities.%s is declared, and System.%s is nil", f.capability, f.function)
		case f.given && !f.declared:
			tb.Errorf("oncetest: System.%s is set, and Capabilities.%s is not declared: its tests would not run", f.function, f.capability)
		}
		as = as && f.declared == f.given
	}
	if !as {
		tb.FailNow()
	}
}

func seedFrom(tb testing.TB) uint64 {
	tb.Helper()
	text := os.Getenv(SeedVariable)
	if text == "" {
		return rand.Uint64()>>1 + 1 //nolint:gosec // chance is what is wanted, not secrecy
	}
	seed, err := strconv.ParseUint(text, 0, 64)
	if err != nil || seed == 0 {
		tb.Fatalf("oncetest: %s is %q, and should be the seed that a failing test printed", SeedVariable, text)
	}
	return seed
}

// need is what a test asks of a subject.
type need struct {
	// name is what the subject would have to set.
	name string
	met  func(*Subject) bool
}

var (
	needMarks         = need{"Capabilities.Marks", func(s *Subject) bool { return s.Capabilities.Marks }}
	needKeys          = need{"Capabilities.Keys", func(s *Subject) bool { return s.Capabilities.Keys }}
	needClients       = need{"Capabilities.Clients", func(s *Subject) bool { return s.Capabilities.Clients }}
	needFingerprints  = need{"Capabilities.Fingerprints", func(s *Subject) bool { return s.Capabilities.Fingerprints }}
	needRejections    = need{"Capabilities.Rejections", func(s *Subject) bool { return s.Capabilities.Rejections }}
	needConcurrency   = need{"Capabilities.Concurrency", func(s *Subject) bool { return s.Capabilities.Concurrency }}
	needEffectFaults  = need{"Capabilities.EffectFaults", func(s *Subject) bool { return s.Capabilities.EffectFaults }}
	needStoreFaults   = need{"Capabilities.StoreFaults", func(s *Subject) bool { return s.Capabilities.StoreFaults }}
	needRestarts      = need{"Capabilities.Restarts", func(s *Subject) bool { return s.Capabilities.Restarts }}
	needSideEffects   = need{"Capabilities.SideEffects", func(s *Subject) bool { return s.Capabilities.SideEffects }}
	needCompensations = need{"Capabilities.Compensations", func(s *Subject) bool { return s.Capabilities.Compensations }}
	needSettlement    = need{"Capabilities.Settlement", func(s *Subject) bool { return s.Capabilities.Settlement }}
	needRedelivery    = need{"Subject.Redelivery", func(s *Subject) bool { return s.Redelivery > 0 }}
	needRefuse        = need{"Mode Refuse", func(s *Subject) bool { return s.Mode == Refuse }}
)

// test is one test of the suite.
type test struct {
	name  string
	needs []need
	run   func(*trial)
}

// lacks names what the subject would have to declare for the test.
func (tc *test) lacks(s *Subject) (names []string) {
	for _, n := range tc.needs {
		if !n.met(s) {
			names = append(names, n.name)
		}
	}
	return names
}

// tests is the suite. docs/reference/proofs.md maps the practice list to these names.
var tests = []test{
	{"ThreeSendsOneEffect", nil, threeSends},
	{"DuplicateGetsTheSameResult", nil, sameResult},
	{"DuplicateIsMarkedAsReplay", []need{needMarks}, marked},
	{"DifferentOperationsBothRun", nil, differentOperations},
	{"EveryOperationSentTwice", nil, everyOperationTwice},
	{"MissingKeyIsRefused", []need{needKeys}, missingKey},
	{"KeysAreScopedPerClient", []need{needClients}, scopedPerClient},
	{"OtherAmountIsRefused", []need{needFingerprints}, mismatch},
	{"RejectionIsReplayed", []need{needRejections}, rejection},
	{"LateRedeliveryHasNoSecondEffect", []need{needRedelivery}, lateRedelivery},
	{"SideEffectsHappenOnce", []need{needSideEffects}, sideEffectsOnce},
	{"SideEffectsHaveKeysOfTheirOwn", []need{needSideEffects}, sideEffectKeys},
	{"CompensationHappensOnce", []need{needCompensations}, compensation},

	{"ThreeConcurrentOneEffect", []need{needConcurrency}, threeConcurrent},
	{"FiveConcurrentOfASlowOneProcessed", []need{needConcurrency, needEffectFaults}, fiveConcurrent},
	{"InFlightDuplicateFailsFastOrWaits", []need{needConcurrency, needEffectFaults}, inFlight},
	{"InFlightOtherAmountIsRefused", []need{needConcurrency, needEffectFaults, needFingerprints}, inFlightMismatch},
	{"ManyOperationsAtOnceOneEffectEach", []need{needConcurrency}, manyAtOnce},

	{"RetryAfterFailureRunsAgain", []need{needEffectFaults}, retryAfterFailure},
	{"FailureBeforeTheEffect", []need{needEffectFaults}, failureBefore},
	{"FailureAfterTheEffect", []need{needEffectFaults}, failureAfter},
	{"UnknownIsNotRunAgain", []need{needEffectFaults, needRefuse}, unknownStays},
	{"UnknownCanBeSettled", []need{needEffectFaults, needSettlement}, unknownSettled},
	{"StoreErrorIsNotADuplicate", []need{needStoreFaults}, storeError},

	{"DuplicateAfterRestartIsReplayed", []need{needRestarts}, afterRestart},
	{"CrashBeforeTheWork", []need{needRestarts, needEffectFaults}, crashBeforeWork},
	{"CrashBetweenWorkAndRecord", []need{needRestarts, needEffectFaults}, crashAfterWork},
	{"CrashBeforeTheRecordIsSaved", []need{needRestarts, needStoreFaults}, crashBeforeSave},
	{"CrashBetweenRecordAndAnswer", []need{needRestarts, needStoreFaults}, crashAfterSave},

	{"ChaosOfTheEffect", []need{needEffectFaults}, chaosEffect},
	{"ChaosOfTheStore", []need{needStoreFaults}, chaosStore},
	{"ChaosOfBoth", []need{needEffectFaults, needStoreFaults}, chaosBoth},
}
