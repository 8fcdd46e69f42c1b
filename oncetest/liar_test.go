package oncetest

import (
	"context"
	"strings"
	"testing"

	"github.com/everonce/everonce"
)

// liar is a system that does nothing: it answers as configured, and so does its ledger. It is honest where nothing
// is configured.
type liar struct {
	test    string
	finds   string                            // what the test says
	answer  func(n int, op Operation) *Answer // the nth delivery of an operation; nil is honest
	effects func(sent map[string]int) int     // of any operation
	side    func(n int, op Operation) []SideEffect
	undo    func(n int) *Answer
	undone  int
}

func (l *liar) system() System {
	sent, undone := map[string]int{}, 0
	nth := func(n int, told *Answer) Answer {
		switch {
		case told != nil:
			return *told
		case n == 1:
			return Answer{Outcome: everonce.Executed, Result: "result"}
		}
		return Answer{Outcome: everonce.Replayed, Result: "result"}
	}
	return System{
		Deliver: func(_ context.Context, op Operation) Answer {
			id := op.Client + "/" + op.Key
			sent[id]++
			var told *Answer
			if l.answer != nil {
				told = l.answer(sent[id], op)
			}
			return nth(sent[id], told)
		},
		Effects: func(_ context.Context, op Operation) (int, error) {
			if l.effects != nil {
				return l.effects(sent), nil
			}
			return min(sent[op.Client+"/"+op.Key], 1), nil
		},
		SideEffects: func(_ context.Context, op Operation) ([]SideEffect, error) {
			if l.side != nil {
				return l.side(sent[op.Client+"/"+op.Key], op), nil
			}
			return []SideEffect{{"mail", op.Key, 1}}, nil
		},
		Compensate: func(context.Context, Operation) Answer {
			undone++
			var told *Answer
			if l.undo != nil {
				told = l.undo(undone)
			}
			return nth(undone, told)
		},
		Compensations: func(context.Context, Operation) (int, error) { return max(l.undone, 1), nil },
	}
}

// on answers the nth delivery so, and is honest otherwise.
func on(nth int, o everonce.Outcome, result string) func(int, Operation) *Answer {
	return func(n int, _ Operation) *Answer {
		if n != nth {
			return nil
		}
		return &Answer{Outcome: o, Result: result}
	}
}

// always answers every delivery so.
func always(o everonce.Outcome) func(int, Operation) *Answer {
	return func(int, Operation) *Answer { return &Answer{Outcome: o} }
}

// second answers the second client's nth delivery so.
func second(nth int, o everonce.Outcome, result string) func(int, Operation) *Answer {
	return func(n int, op Operation) *Answer {
		if op.Client == "client-1" || n != nth {
			return nil
		}
		return &Answer{Outcome: o, Result: result}
	}
}

// total counts all deliveries.
func total(sent map[string]int) (n int) {
	for _, times := range sent {
		n += times
	}
	return n
}

// Each assertion of a test finds what only it can: a system that lies in one point alone is found, and an honest
// one is not.
func TestEachAssertionFindsItsLiar(t *testing.T) {
	again := func(n int) func(map[string]int) int { // a second effect with the nth delivery
		return func(sent map[string]int) int {
			if total(sent) >= n {
				return 2
			}
			return 1
		}
	}
	none := func(map[string]int) int { return 0 }
	undone := func(nth int, o everonce.Outcome, result string) func(int) *Answer {
		return func(n int) *Answer { return on(nth, o, result)(n, Operation{}) }
	}
	for _, l := range []liar{
		{test: "ThreeSendsOneEffect"},
		{test: "ThreeSendsOneEffect", finds: "a duplicate was answered failed", answer: on(3, everonce.Failed, "")},
		{test: "DuplicateGetsTheSameResult", finds: "and not its result", answer: on(2, everonce.Expired, "")},
		{test: "DuplicateGetsTheSameResult", finds: "and not its result", answer: on(2, everonce.Elided, "")},
		{test: "DuplicateGetsTheSameResult", finds: "not marked", answer: on(2, everonce.Executed, "result")},
		{test: "DifferentOperationsBothRun", finds: "2 effects, want 1", effects: func(sent map[string]int) int { return len(sent) }},
		{test: "EveryOperationSentTwice"},
		{test: "EveryOperationSentTwice", finds: "2 effects, want 1", effects: again(20)},
		{test: "MissingKeyIsRefused", finds: "without a key was answered executed", effects: none},
		{test: "MissingKeyIsRefused", finds: "1 effects, want 0", answer: always(everonce.Invalid)},
		{test: "KeysAreScopedPerClient"},
		{test: "KeysAreScopedPerClient", finds: "a separate operation", answer: second(1, everonce.Replayed, "result")},
		{test: "KeysAreScopedPerClient", finds: "a separate operation", answer: second(1, everonce.Failed, "")},
		{test: "KeysAreScopedPerClient", finds: "a duplicate got the result", answer: second(2, everonce.Replayed, "another")},
		{test: "KeysAreScopedPerClient", finds: "2 effects, want 1", effects: again(2)},
		{test: "RejectionIsReplayed", finds: "must be refused for good was answered executed", effects: none},
		{test: "RejectionIsReplayed", finds: "1 effects, want 0", answer: always(everonce.Rejected)},
		{test: "LateRedeliveryHasNoSecondEffect"},
		{test: "LateRedeliveryHasNoSecondEffect", finds: "a late duplicate was answered failed", answer: on(2, everonce.Failed, "")},
		{test: "LateRedeliveryHasNoSecondEffect", finds: "not marked", answer: on(3, everonce.Executed, "result")},
		{test: "LateRedeliveryHasNoSecondEffect", finds: "2 effects, want 1", effects: again(3)},
		{test: "SideEffectsHappenOnce"},
		{test: "SideEffectsHappenOnce", finds: "the operation had none", side: func(int, Operation) []SideEffect { return nil }},
		{test: "SideEffectsHappenOnce", finds: "took hold 0 times", side: func(int, Operation) []SideEffect { return []SideEffect{{"mail", "m", 0}} }},
		{test: "SideEffectsHappenOnce", finds: "took hold 2 times", side: func(n int, _ Operation) []SideEffect { return []SideEffect{{"mail", "m", max(n-1, 1)}} }},
		{test: "SideEffectsHaveKeysOfTheirOwn"},
		{test: "SideEffectsHaveKeysOfTheirOwn", finds: "the operation had none", side: func(int, Operation) []SideEffect { return nil }},
		{test: "SideEffectsHaveKeysOfTheirOwn", finds: "without a key", side: func(int, Operation) []SideEffect { return []SideEffect{{"mail", "", 1}} }},
		{test: "SideEffectsHaveKeysOfTheirOwn", finds: "with the key of", side: func(int, Operation) []SideEffect { return []SideEffect{{"mail", "m", 1}} }},
		{test: "CompensationHappensOnce"},
		{test: "CompensationHappensOnce", finds: "its compensation was answered failed", undo: undone(1, everonce.Failed, "")},
		{test: "CompensationHappensOnce", finds: "a duplicate got the result", undo: undone(3, everonce.Replayed, "another")},
		{test: "CompensationHappensOnce", finds: "not marked", undo: undone(2, everonce.Executed, "result")},
		{test: "CompensationHappensOnce", finds: "was undone 2 times", undone: 2},
		{test: "CompensationHappensOnce", finds: "a duplicate was answered failed", answer: on(2, everonce.Failed, "")},
		{test: "CompensationHappensOnce", finds: "2 effects, want 1", effects: again(2)},
	} {
		s := Subject{
			Mode: Refuse, Seed: 1, Redelivery: 2, New: func(testing.TB, *Faults) System { return l.system() },
			Capabilities: Capabilities{Marks: true, Keys: true, Clients: true, Rejections: true, SideEffects: true, Compensations: true},
		}
		s.check(t)
		for _, tc := range tests {
			if tc.name != l.test {
				continue
			}
			r := recorded(t, func(tb testing.TB) { tc.run(newTrial(tb, &s, tc.name)) })
			if r.Failed() != (l.finds != "") || !strings.Contains(r.text(), l.finds) {
				t.Errorf("%s was to find %q, and said: %s", l.test, l.finds, r.text())
			}
		}
	}
}
