package drivertest

import (
	"pgregory.net/rapid"

	"github.com/everonce/everonce"
)

// decisionChecks drive one record with generated calls.
func decisionChecks() []check {
	return []check{{name: "Rule20/DecidesAsSpecified", run: checkDecisions}}
}

// generatedChecks drive several.
func generatedChecks() []check {
	return []check{{name: "Model/RandomCallsOnSomeKeys", run: checkRandomCalls}}
}

// checkDecisions brings one key into a generated state by real calls, and compares every answer and every
// record with the specification.
func checkDecisions(e *env) {
	e.generate(func(t *rapid.T, e *env) {
		m := &machine{e: e, t: t, key: e.key()}
		m.run(8)
	})
}

// checkRandomCalls mixes calls on several keys.
func checkRandomCalls(e *env) {
	e.generate(func(t *rapid.T, e *env) {
		var machines []*machine
		for range 3 {
			m := &machine{e: e, t: t, key: everonce.Key{Scope: e.scope, ID: e.key().ID}}
			m.claim()
			machines = append(machines, m)
		}
		for range rapid.IntRange(5, 20).Draw(t, "turns") {
			rapid.SampledFrom(machines).Draw(t, "key").run(2)
		}
	})
}

// generate runs a property with generated input.
func (e *env) generate(property func(t *rapid.T, e *env)) {
	e.Helper()
	t, ok := e.reporter.(rapid.TB)
	if !ok {
		e.Fatalf("drivertest: a generated check needs a testing.TB")
	}
	rapid.Check(t, func(t *rapid.T) { property(t, e.to(t, e.s)) })
}
