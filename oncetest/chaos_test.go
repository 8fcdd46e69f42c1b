package oncetest

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/everonce/everonce"
)

// traceOf runs the chaos on a payment service, and returns what was sent and what failed.
func traceOf(t *testing.T, seed uint64, mode Mode, policy everonce.Policy) (trace []event) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := altered(mode, policy, nil)
		s.Seed = seed
		s.check(t)
		tr := newTrial(t, &s, "ChaosOfBoth")
		chaosBoth(tr)
		trace = tr.world.traceOf(nil)
	})
	return trace
}

func TestSameSeedSameTrace(t *testing.T) {
	for _, g := range guarded {
		t.Run(g.mode.String(), func(t *testing.T) {
			one, two := traceOf(t, 7, g.mode, g.policy), traceOf(t, 7, g.mode, g.policy)
			if len(one) < 3*chaosOperations {
				t.Fatalf("the trace has %d lines only", len(one))
			}
			for i := range max(len(one), len(two)) {
				if i >= len(one) || i >= len(two) || one[i] != two[i] {
					t.Fatalf("the same seed, and line %d of %d and %d differs", i, len(one), len(two))
				}
			}
			if slices.Equal(one, traceOf(t, 8, g.mode, g.policy)) {
				t.Error("another seed has the same trace")
			}
		})
	}
}

// The chaos is as large as it is said to be: a hundred operations, the first of them a hundred times; 30 % of the
// store's calls fail, and 20 % of the effects.
func TestTheSizeOfTheChaos(t *testing.T) {
	trace := traceOf(t, 7, Reexecute, everonce.Reexecute)
	sent, last := map[string]int{}, 0
	for _, e := range trace {
		if key, ok := strings.CutPrefix(e.what, "deliver "); ok {
			sent[key]++
		} else if strings.HasSuffix(e.what, FailBefore.String()) || strings.HasSuffix(e.what, FailAfter.String()) {
			last = e.delivery // what comes behind it was sent when nothing failed any more
		}
	}
	if n := sent["ChaosOfBoth-7-1"]; len(sent) != 100 || n < 100 {
		t.Errorf("%d operations, and the first was sent %d times", len(sent), n)
	}
	var calls, failed [2]float64
	for _, e := range trace {
		call, fault, ok := strings.Cut(e.what, ": ")
		if !ok || e.delivery > last || call == "answer" {
			continue
		}
		of := 0
		if strings.HasPrefix(call, OpEffect.String()+" ") {
			of = 1
		}
		if calls[of]++; fault != Pass.String() {
			failed[of]++
		}
	}
	if store, effect := failed[0]/calls[0], failed[1]/calls[1]; store < 0.25 || store > 0.35 || effect < 0.13 || effect > 0.27 {
		t.Errorf("%.2f of %v calls of the store failed, and %.2f of %v effects", store, calls[0], effect, calls[1])
	}
	s := Subject{Mode: Refuse, New: func(testing.TB, *Faults) System { return System{} }}
	if s.check(t); s.Lease != 30*time.Second || s.Operations != 100 {
		t.Errorf("by default: Lease %v, Operations %d", s.Lease, s.Operations)
	}
}

func TestSeed(t *testing.T) {
	t.Setenv(SeedVariable, "0x2a")
	if got := seedFrom(t); got != 42 {
		t.Errorf("the seed is %d, and %s says 0x2a", got, SeedVariable)
	}
	s := Subject{Mode: Refuse, Seed: 43, New: func(testing.TB, *Faults) System { return System{} }}
	if s.check(t); s.Seed != 43 {
		t.Errorf("the seed is %d, and Subject.Seed said 43", s.Seed)
	}
	t.Setenv(SeedVariable, "tuesday")
	if r := recorded(t, func(tb testing.TB) { seedFrom(tb) }); !r.Failed() {
		t.Error("a seed that is no number was taken")
	}
	t.Setenv(SeedVariable, "")
	if one, two := seedFrom(t), seedFrom(t); one == two {
		t.Error("two runs have the same seed")
	}
}

// TestFailurePrintsItsSeed takes a failure, and replays it by what it printed.
func TestFailurePrintsItsSeed(t *testing.T) {
	s := altered(Reexecute, everonce.Reexecute, func(p *payments) { p.gateway = NewGateway(nil) })
	fails := func(s Subject) (r *recorder) {
		synctest.Test(t, func(t *testing.T) {
			s.check(t)
			r = recorded(t, func(tb testing.TB) { chaosBoth(newTrial(tb, &s, "ChaosOfBoth")) })
		})
		return r
	}
	s.Seed = 99
	first := fails(s)
	if !first.Failed() || !strings.Contains(first.text(), SeedVariable+"=99 go test -run") {
		t.Fatalf("the failure does not say its seed:\n%s", first.text())
	}
	s.Seed = 0
	t.Setenv(SeedVariable, "99")
	if again := fails(s); again.text() != first.text() {
		t.Errorf("replayed, the failure was another:\n%s\n--\n%s", first.text(), again.text())
	}
}

// TestJudge calls the oracle with made-up facts.
func TestJudge(t *testing.T) {
	const done, lost, failed = everonce.Replayed, everonce.Unknown, everonce.Failed
	for _, tc := range []struct {
		mode    Mode
		last    everonce.Outcome
		effects int
		faulted bool
		wrong   bool
	}{
		{Transactional, done, 1, true, false},
		{Transactional, done, 0, true, true},
		{Transactional, done, 2, true, true},
		{Transactional, lost, 1, true, true},
		{Transactional, failed, 0, true, true},
		{Reexecute, done, 1, true, false},
		{Reexecute, done, 2, true, true},
		{Reexecute, lost, 1, true, true},
		{Reconcile, done, 1, true, false},
		{Reconcile, lost, 1, true, true},
		{Refuse, done, 1, true, false},
		{Refuse, done, 0, true, true},
		{Refuse, done, 2, true, true},
		{Refuse, lost, 0, true, false},
		{Refuse, lost, 1, true, false},
		{Refuse, lost, 2, true, true},
		{Refuse, lost, 0, false, true},
		{Refuse, failed, 0, true, true},
		{Refuse, everonce.Elided, 1, false, false},
		{Refuse, everonce.Rejected, 0, false, true},
	} {
		s := Subject{Mode: tc.mode, Seed: 1, New: func(testing.TB, *Faults) System {
			return System{
				Deliver: func(context.Context, Operation) Answer { return Answer{Outcome: tc.last} },
				Effects: func(context.Context, Operation) (int, error) { return tc.effects, nil },
			}
		}}
		r := recorded(t, func(tb testing.TB) {
			tr := newTrial(tb, &s, "x")
			tr.judge(tr.operation(), Answer{Outcome: tc.last}, tc.faulted)
		})
		if r.Failed() != tc.wrong {
			t.Errorf("%v, answered %v, %d effects, faulted %v: found wrong is %v, want %v", tc.mode, tc.last, tc.effects, tc.faulted, r.Failed(), tc.wrong)
		}
	}
}

// TestJudgeOfSideEffects: what an operation does beside its effect happens once where it is done, and never twice.
func TestJudgeOfSideEffects(t *testing.T) {
	for _, tc := range []struct {
		last  everonce.Outcome
		count int
		wrong bool
	}{
		{everonce.Replayed, 0, true},
		{everonce.Replayed, 1, false},
		{everonce.Replayed, 2, true},
		{everonce.Unknown, 0, false},
		{everonce.Unknown, 1, false},
		{everonce.Unknown, 2, true},
	} {
		s := Subject{Mode: Refuse, Seed: 1, Capabilities: Capabilities{SideEffects: true}, New: func(testing.TB, *Faults) System {
			return System{
				Deliver: func(context.Context, Operation) Answer { return Answer{Outcome: tc.last} },
				Effects: func(context.Context, Operation) (int, error) { return 1, nil },
				SideEffects: func(context.Context, Operation) ([]SideEffect, error) {
					return []SideEffect{{"mail", "m", tc.count}, {"metric", "n", min(tc.count, 1)}}, nil
				},
			}
		}}
		r := recorded(t, func(tb testing.TB) {
			tr := newTrial(tb, &s, "x")
			tr.judge(tr.operation(), Answer{Outcome: tc.last}, true)
		})
		if r.Failed() != tc.wrong {
			t.Errorf("answered %v, %d mails: found wrong is %v, want %v", tc.last, tc.count, r.Failed(), tc.wrong)
		}
	}
}

// TestBlindChaosFails: a chaos in which nothing failed proves nothing, and says so.
func TestBlindChaosFails(t *testing.T) {
	tr := &trial{subject: &Subject{Mode: Reexecute}, world: newWorld()}
	for _, tc := range []struct {
		injected int
		doubles  int
		blind    bool
	}{{0, 2, true}, {1, 1, true}, {1, 2, false}} {
		for _, effect := range []bool{false, true} {
			for _, f := range []Fault{FailBefore, FailAfter} {
				tr.world.injected[injection{effect, f}] = tc.injected
			}
		}
		tr.world.effects["x"] = tc.doubles
		if blind := tr.blind(true, true); (blind != "") != tc.blind {
			t.Errorf("%+v: blind is %q", tc, blind)
		}
	}
	// One that asks, and calls it Reexecute: no effect runs twice, so there is no double to be found.
	s := altered(Reexecute, everonce.Reconcile, nil)
	var r *recorder
	synctest.Test(t, func(t *testing.T) {
		s.check(t)
		r = recorded(t, func(tb testing.TB) { chaosEffect(newTrial(tb, &s, "ChaosOfTheEffect")) })
	})
	if !r.Failed() || !strings.Contains(r.text(), "the chaos was blind") {
		t.Errorf("a chaos without a double passed: %s", r.text())
	}
}

// TestFewOperationsSeeEnough: however few operations are asked for, every kind of fault is seen.
func TestFewOperationsSeeEnough(t *testing.T) {
	for seed := range uint64(20) {
		synctest.Test(t, func(t *testing.T) {
			s := altered(Refuse, everonce.Refuse, nil)
			s.Seed, s.Operations = seed+1, 1
			s.check(t)
			chaosBoth(newTrial(t, &s, "ChaosOfBoth"))
		})
	}
}

func TestSubjectIsChecked(t *testing.T) {
	good := altered(Refuse, everonce.Refuse, nil)
	for want, change := range map[string]func(*Subject){
		"Subject.New is required":     func(s *Subject) { s.New = nil },
		"Subject.Mode is required":    func(s *Subject) { s.Mode = 0 },
		"Redelivery or Subject.Op":    func(s *Subject) { s.Redelivery = -1 },
		"for the mode Refuse alone":   func(s *Subject) { s.Mode = Reexecute },
		"System.SideEffects is nil":   func(s *Subject) { s.Capabilities.SideEffects = true },
		"System.Settle is set":        func(s *Subject) { s.Capabilities.Settlement = false },
		"System.Compensate is set":    func(s *Subject) { s.Capabilities.Compensations = false },
		"System.Restart is set":       func(s *Subject) { s.Capabilities.Restarts = false },
		"nothing makes it pass":       func(s *Subject) { s.Bubble = false },
		"System.Effects are required": func(s *Subject) { s.New = func(testing.TB, *Faults) System { return System{} } },
		"Deliver returned no outcom":  func(s *Subject) { s.New = answers(0) },
		"Effects: the ledger is":      func(s *Subject) { s.New = answers(everonce.Executed) },
	} {
		s := good
		change(&s)
		r := recorded(t, func(tb testing.TB) {
			runAll(tb, s, func(name string, body func(testing.TB)) bool {
				if name == declaredTest || name == "ThreeSendsOneEffect" || name == "LateRedeliveryHasNoSecondEffect" {
					body(tb)
				}
				return !tb.Failed()
			})
		})
		if !r.Failed() || !strings.Contains(r.text(), want) {
			t.Errorf("%q: the subject was not refused so, but: %s", want, r.text())
		}
	}
}

// A false declaration is reported once, in its own subtest, and completely.
func TestAFalseDeclarationIsReportedOnce(t *testing.T) {
	s := altered(Refuse, everonce.Refuse, nil)
	s.Capabilities.SideEffects, s.Capabilities.Settlement = true, false
	got, suite := runRecorded(t, s)
	if len(got) != 1 || got[declaredTest] == nil || !got[declaredTest].Failed() {
		t.Fatalf("%d tests ran, want the one: %v", len(got), got)
	}
	for _, want := range []string{"System.SideEffects is nil", "System.Settle is set"} {
		if strings.Count(got[declaredTest].text(), want) != 1 {
			t.Errorf("it does not say %q: %s", want, got[declaredTest].text())
		}
	}
	if !strings.Contains(suite.text(), "no other test was run") {
		t.Errorf("the suite says %q", suite.text())
	}
}

// answers builds systems that answer everything alike and have lost their ledger.
func answers(o everonce.Outcome) func(testing.TB, *Faults) System {
	return func(testing.TB, *Faults) System {
		return System{
			Deliver: func(context.Context, Operation) Answer { return Answer{Outcome: o} },
			Effects: func(context.Context, Operation) (int, error) { return 0, errors.New("the ledger is lost") },
			Compensate: func(context.Context, Operation) Answer {
				return Answer{}
			},
			Compensations: func(context.Context, Operation) (int, error) { return 0, nil },
			Settle:        func(context.Context, Operation, bool) error { return nil },
			Restart:       func(*Faults) System { return System{} },
		}
	}
}

func TestUndeclaredTestsAreListed(t *testing.T) {
	s := altered(Reexecute, everonce.Reexecute, nil)
	s.Capabilities = Capabilities{}
	s.Redelivery = 0
	s.New = func(testing.TB, *Faults) System {
		t.Error("no test should have been built") // none is run below
		return System{}
	}
	var ran []string
	r := recorded(t, func(tb testing.TB) {
		runAll(tb, s, func(name string, _ func(testing.TB)) bool { ran = append(ran, name); return true })
	})
	if want := []string{declaredTest, "ThreeSendsOneEffect", "DuplicateGetsTheSameResult", "DifferentOperationsBothRun", "EveryOperationSentTwice"}; !slices.Equal(ran, want) {
		t.Errorf("without capabilities the tests %v ran, want %v", ran, want)
	}
	for _, tc := range tests {
		if listed := strings.Contains(r.text(), "\n\t"+tc.name+": "); listed == slices.Contains(ran, tc.name) {
			t.Errorf("%s: listed as not run is %v, ran is %v", tc.name, listed, !listed)
		}
	}
}
