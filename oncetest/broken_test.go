package oncetest

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/store/memstore"
)

// broken are receivers with one fault each, and tests that must find it.
var broken = []struct {
	name    string
	subject Subject
	caught  []string
}{
	{"no deduplication", naiveSubject(naive{forget: true}), []string{
		"ThreeSendsOneEffect", "EveryOperationSentTwice", "CrashBetweenRecordAndAnswer",
	}},
	{"check, then act", naiveSubject(naive{gap: true}), []string{
		"ThreeConcurrentOneEffect", "FiveConcurrentOfASlowOneProcessed", "InFlightDuplicateFailsFastOrWaits", "ManyOperationsAtOnceOneEffectEach",
	}},
	{"record before the work", naiveSubject(naive{early: true}), []string{
		"RetryAfterFailureRunsAgain", "FailureBeforeTheEffect", "CrashBeforeTheWork", "ChaosOfTheEffect",
	}},
	{"remembers the last key alone", naiveSubject(naive{short: true}), []string{"EveryOperationSentTwice"}},
	{"an error of the record taken for success", wrapped(everonce.Refuse, func(s everonce.Store) everonce.Store { return swallow{s} }), []string{
		"CrashBeforeTheRecordIsSaved", "ChaosOfTheStore", "ChaosOfBoth",
	}},
	{"a failure taken for success", altered(Refuse, everonce.Refuse, func(p *payments) {
		p.tell = func(a Answer) Answer {
			if a.Outcome == everonce.Failed || a.Outcome == everonce.Unknown {
				a.Outcome, a.Err = everonce.Executed, nil
			}
			return a
		}
	}), []string{"RetryAfterFailureRunsAgain", "FailureBeforeTheEffect", "FailureAfterTheEffect"}},
	{"any store error taken for a duplicate", wrapped(everonce.Reexecute, func(s everonce.Store) everonce.Store { return &guess{s} }), []string{
		"StoreErrorIsNotADuplicate", "ChaosOfTheStore",
	}},
	{"runs the unknown again under Refuse", altered(Refuse, everonce.Reexecute, func(p *payments) {
		p.gateway = NewGateway(nil)
	}), []string{"UnknownIsNotRunAgain", "FailureAfterTheEffect", "CrashBetweenWorkAndRecord", "ChaosOfTheEffect", "ChaosOfBoth"}},
	{"runs again, and nothing deduplicates", altered(Reexecute, everonce.Reexecute, func(p *payments) {
		p.gateway = NewGateway(nil)
	}), []string{"FailureAfterTheEffect", "CrashBetweenWorkAndRecord", "ChaosOfTheEffect", "ChaosOfBoth"}},
	{"new downstream keys in every attempt", altered(Reexecute, everonce.Reexecute, func(p *payments) {
		p.fresh = true
	}), []string{"FailureAfterTheEffect", "ChaosOfBoth"}},
	{"refuses where it should run again", altered(Reexecute, everonce.Refuse, nil), []string{
		"FailureAfterTheEffect", "FailureBeforeTheEffect", "ChaosOfTheEffect",
	}},
	{"asks where it should run again", altered(Reexecute, everonce.Reconcile, nil), []string{"FailureAfterTheEffect", "ChaosOfTheEffect"}},
	{"a reconciler that lies", altered(Reconcile, everonce.Reconcile, func(p *payments) {
		p.found = func(string) (Receipt, bool) { return Receipt{}, false }
	}), []string{"FailureAfterTheEffect", "CrashBetweenWorkAndRecord", "ChaosOfTheEffect"}},
	{"unknown without a fault", altered(Refuse, everonce.Refuse, func(p *payments) {
		p.tell = func(a Answer) Answer {
			if a.Outcome == everonce.StoreFailed {
				a.Outcome = everonce.Unknown
			}
			return a
		}
	}), []string{"StoreErrorIsNotADuplicate"}},
	{"replays across scopes", altered(Refuse, everonce.Refuse, func(p *payments) {
		p.scope = func(string) everonce.Scope { return "payments" }
	}), []string{"KeysAreScopedPerClient"}},
	{"ignores fingerprints", altered(Refuse, everonce.Refuse, func(p *payments) {
		p.print = func(Operation) everonce.CallOption { return everonce.FingerprintOf() }
	}), []string{"OtherAmountIsRefused", "InFlightOtherAmountIsRefused"}},
	{"loses the result", altered(Refuse, everonce.Refuse, func(p *payments) {
		p.tell = func(a Answer) Answer {
			if a.Outcome == everonce.Replayed {
				a.Result = Receipt{}
			}
			return a
		}
	}), []string{"DuplicateGetsTheSameResult", "DuplicateAfterRestartIsReplayed"}},
	{"a seen flag in place of the result", altered(Refuse, everonce.Refuse, func(p *payments) {
		p.tell = func(a Answer) Answer {
			if a.Outcome == everonce.Replayed {
				return Answer{Outcome: everonce.Elided, Err: everonce.ErrResultElided}
			}
			return a
		}
	}), []string{"DuplicateGetsTheSameResult", "DuplicateIsMarkedAsReplay"}},
	{"marks nothing", altered(Refuse, everonce.Refuse, func(p *payments) {
		p.tell = func(a Answer) Answer {
			if a.Outcome == everonce.Replayed {
				a.Outcome = everonce.Executed
			}
			return a
		}
	}), []string{"DuplicateIsMarkedAsReplay"}},
	{"a duplicate is an error", altered(Refuse, everonce.Refuse, func(p *payments) {
		p.tell = func(a Answer) Answer {
			if a.Outcome == everonce.Replayed {
				return Answer{Outcome: everonce.Failed}
			}
			return a
		}
	}), []string{"ThreeSendsOneEffect", "DuplicateIsMarkedAsReplay"}},
	{"makes up a key", altered(Refuse, everonce.Refuse, func(p *payments) {
		p.key = func(op Operation) string { return "key" + op.Key }
	}), []string{"MissingKeyIsRefused"}},
	{"the content is the key", altered(Refuse, everonce.Refuse, func(p *payments) {
		p.key = func(op Operation) string { return fmt.Sprint(op.Amount) }
	}), []string{"DifferentOperationsBothRun"}},
	{"a rejection that changes", altered(Refuse, everonce.Refuse, func(p *payments) {
		var n atomic.Int64
		p.tell = func(a Answer) Answer {
			if a.Outcome == everonce.Rejected {
				a.Result = n.Add(1)
			}
			return a
		}
	}), []string{"RejectionIsReplayed"}},
	{"forgets before the last redelivery", altered(Refuse, everonce.Refuse, func(p *payments) {
		p.life = func(o everonce.Options) everonce.Options {
			o.Lifetime = everonce.Lifetime{Retention: 30 * time.Hour}
			return o
		}
	}), []string{"LateRedeliveryHasNoSecondEffect"}},
	{"a mail with every delivery", inSteps(everonce.Refuse, func(p *payments) {
		p.after = func(ctx context.Context, g *Client, op Operation) {
			_, _ = g.gateway.Call(ctx, "mail for "+op.Key, "mail "+op.Key)
		}
	}), []string{"SideEffectsHappenOnce"}},
	{"side effects share a key", inSteps(everonce.Refuse, func(p *payments) {
		p.name = func(string) string { return "side" }
	}), []string{"SideEffectsHaveKeysOfTheirOwn"}},
	{"a compensation with a key per call", altered(Refuse, everonce.Refuse, func(p *payments) {
		var n atomic.Int64
		p.undo = func(op Operation) everonce.Key {
			return everonce.Key{Scope: "refunds", ID: fmt.Sprint(op.Key, n.Add(1))}
		}
	}), []string{"CompensationHappensOnce"}},
	{"settles nothing", altered(Refuse, everonce.Refuse, func(p *payments) { p.settleNothing = true }), []string{"UnknownCanBeSettled"}},
	{"memory only", altered(Refuse, everonce.Refuse, func(p *payments) {
		p.again = func() *payments {
			q := newPayments(everonce.Refuse)
			q.gateway = p.gateway
			return q
		}
	}), []string{"DuplicateAfterRestartIsReplayed", "CrashBetweenRecordAndAnswer"}},
	{"declared and not wired", altered(Refuse, everonce.Refuse, func(p *payments) {
		p.plan = func(Plan) Plan { return nil }
	}), []string{
		"FiveConcurrentOfASlowOneProcessed", "InFlightDuplicateFailsFastOrWaits", "RetryAfterFailureRunsAgain", "StoreErrorIsNotADuplicate",
		"CrashBeforeTheWork", "CrashBeforeTheRecordIsSaved", "ChaosOfTheEffect", "ChaosOfTheStore", "ChaosOfBoth",
	}},
}

// TestNotBlind runs the whole suite on every broken receiver: the tests named beside it must fail, and
// every test must fail on one of them.
func TestNotBlind(t *testing.T) {
	caught := map[string][]string{}
	for _, b := range broken {
		t.Run(b.name, func(t *testing.T) {
			got, suite := runRecorded(t, b.subject)
			if suite.Failed() {
				t.Fatalf("the suite refused the subject: %s", suite.text())
			}
			for name, r := range got {
				if r.Failed() {
					caught[name] = append(caught[name], b.name)
				}
			}
			for _, name := range b.caught {
				switch r, ran := got[name]; {
				case !ran:
					t.Errorf("%s was not run", name)
				case !r.Failed():
					t.Errorf("%s did not find it", name)
				}
			}
		})
	}
	for _, tc := range tests {
		if len(caught[tc.name]) == 0 {
			t.Errorf("%s fails on no broken receiver", tc.name)
		}
	}
}

// altered is the payment service with one thing changed.
func altered(mode Mode, policy everonce.Policy, change func(*payments)) Subject {
	return subjectOf(mode, func() *payments {
		p := newPayments(policy)
		p.settles = mode == Refuse
		if change != nil {
			change(p)
		}
		return p
	})
}

func inSteps(policy everonce.Policy, change func(*payments)) Subject {
	return subjectOf(Refuse, func() *payments {
		p := newPayments(policy)
		p.inSteps = true
		change(p)
		return p
	})
}

func wrapped(policy everonce.Policy, wrap func(everonce.Store) everonce.Store) Subject {
	mode := map[everonce.Policy]Mode{everonce.Reexecute: Reexecute, everonce.Refuse: Refuse}[policy]
	return altered(mode, policy, func(p *payments) { p.wrap = wrap })
}

// swallow takes a completion that failed for one that was done.
type swallow struct{ everonce.Store }

func (s swallow) Complete(ctx context.Context, req driver.CompleteRequest) (driver.CompleteResult, error) {
	res, _ := s.Store.Complete(ctx, req)
	return res, nil
}

// guess takes every failure of a claim for the news that it was done before.
type guess struct{ everonce.Store }

func (s *guess) Claim(ctx context.Context, req driver.ClaimRequest) (driver.ClaimResult, error) {
	res, err := s.Store.Claim(ctx, req)
	if err == nil {
		return res, nil
	}
	return driver.ClaimResult{Decision: driver.DecideReplay, Record: driver.Record{
		State: driver.StateCompleted, Result: driver.SavedResult{Kind: driver.ResultElided},
	}}, nil
}

// naive is a receiver as it is written by hand: a map of what was done, and one fault.
type naive struct {
	forget bool // nothing is kept
	gap    bool // the check and the work are two critical sections
	early  bool // done is written before the work
	short  bool // one entry

	mu    *sync.Mutex
	done  map[string]Receipt
	truth *Gateway
}

func naiveSubject(n naive) Subject {
	c := Capabilities{Marks: true, Concurrency: true, EffectFaults: true, StoreFaults: true, Restarts: true}
	return Subject{Mode: Reexecute, Capabilities: c, Bubble: true, New: func(_ testing.TB, f *Faults) System {
		fresh := n
		fresh.mu, fresh.done, fresh.truth = new(sync.Mutex), map[string]Receipt{}, NewGateway(nil)
		return fresh.system(f)
	}}
}

func (n naive) system(f *Faults) System {
	// The record is written through a store, so that its calls can fail: what it keeps is of no interest.
	store, gateway := FaultStore(memstore.New(nil), f.Plan()), n.truth.With(f.Plan())
	return System{
		Deliver: func(ctx context.Context, op Operation) Answer { return n.deliver(ctx, store, gateway, op) },
		Effects: func(_ context.Context, op Operation) (int, error) { return n.truth.Effects(op.Key), nil },
		Restart: n.system,
	}
}

func (n naive) deliver(ctx context.Context, store everonce.Store, gateway *Client, op Operation) Answer {
	lock, unlock := n.mu.Lock, n.mu.Unlock
	if !n.gap {
		if !n.mu.TryLock() {
			return Answer{Outcome: everonce.InProgress}
		}
		defer n.mu.Unlock()
		lock, unlock = func() {}, func() {}
	}
	lock()
	receipt, known := n.done[op.Key]
	unlock()
	if known {
		return Answer{Outcome: everonce.Replayed, Result: receipt}
	}
	runtime.Gosched()
	save := func(r Receipt) error {
		lock()
		defer unlock()
		if n.short {
			clear(n.done)
		}
		if !n.forget {
			n.done[op.Key] = r
		}
		_, err := store.Complete(ctx, driver.CompleteRequest{})
		if errors.Is(err, ErrInjected) {
			return err
		}
		return nil
	}
	if n.early {
		_ = save(Receipt{})
	}
	receipt, err := gateway.Call(ctx, op.Key, fmt.Sprint(op.Amount))
	if err == nil {
		err = save(receipt)
	}
	if err != nil {
		return Answer{Outcome: everonce.Failed, Err: err}
	}
	return Answer{Outcome: everonce.Executed, Result: receipt}
}
