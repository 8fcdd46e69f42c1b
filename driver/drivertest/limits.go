package drivertest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/driver"
)

// limitChecks test keys and values at their limits, and the texts of errors (rules 9 to 12).
func limitChecks() []check {
	return []check{
		{name: "Keys/AtTheirLimits", run: checkKeys},
		{name: "Keys/ThatOnlyLookAlike", run: checkLookalikes},
		{name: "Rule09/ScopesAreApart", run: func(e *env) {
			one := everonce.Key{Scope: driver.ScopeOf(string(e.scope), "one"), ID: "same"}
			two := everonce.Key{Scope: driver.ScopeOf(string(e.scope), "two"), ID: "same"}
			a := e.claimed(claimReq(one))
			a.completed("of one")
			b := e.claimed(claimReq(two))
			b.completed("of two")
			for _, a := range []*attempt{a, b} {
				res := e.decided(a.taking(driver.TakeNone), driver.DecideReplay)
				if res.Record.Scope != a.req.Scope || res.Record.Nonce != a.req.Nonce {
					e.Errorf("the result of another scope is replayed")
				}
			}
		}},
		{name: "Rule10/ATooLargeResultIsRefusedAndNothingElse", run: checkTooLarge, needs: func(c Capabilities) bool { return c.RefusesLarger }},
		{name: "Rule11/ResultsByteForByte", run: checkResults},
		{name: "Rule12/ErrorsHoldNoKeyAndNoValue", run: checkErrorTexts},
	}
}

func checkKeys(e *env) {
	full := func(s string, n int) string { return strings.Repeat(s, n/len(s)+1)[:n/len(s)*len(s)] }
	prefix := string(e.scope) + "/"
	for _, c := range []struct{ scope, id string }{
		{full("s", driver.MaxScopeLen-len(prefix)), full("i", driver.MaxIDLen)},
		{full("ß", driver.MaxScopeLen-len(prefix)), full("世", driver.MaxIDLen)},
		{full("🐝", driver.MaxScopeLen-len(prefix)), full("🐝", driver.MaxIDLen)},
		{"x", "x"},
		{"%_%", "'; DROP TABLE records; --"},
		{`\`, `"\'` + "`${jndi}"},
		{" ", " "},
		{"$1", "$1 ? :name @name"},
		{"\u200b\u202e", "\ufeff\u00a0\ufffd"},
	} {
		k := everonce.Key{Scope: driver.Scope(prefix + c.scope), ID: c.id}
		if err := k.Validate(); err != nil {
			e.Fatalf("drivertest: a bad key: %v", err)
		}
		req := claimReq(k)
		req.Owner = full("ö", 128)
		req.Fingerprint = driver.Fingerprint{Alg: full("a", driver.MaxFingerprintAlgLen), Sum: [32]byte(bytes.Repeat([]byte{0xff}, 32))}
		req.Nonce = driver.Nonce(bytes.Repeat([]byte{0xff}, 16))
		a := e.claimed(req)
		e.same("the record", e.get(k), a.rec)
		if a.rec.Scope != k.Scope || a.rec.Name != k.ID || a.rec.Owner != req.Owner || a.rec.Fingerprint != req.Fingerprint {
			e.Errorf("scope, name, owner or fingerprint came back changed: equal are %v, %v, %v, %v",
				a.rec.Scope == k.Scope, a.rec.Name == k.ID, a.rec.Owner == req.Owner, a.rec.Fingerprint == req.Fingerprint)
		}
		end := a.releasing(driver.StateAbandoned)
		end.ErrorClass, end.Step = full("e", 64), full("ß", driver.MaxStepNameLen)
		e.release(end)
		if rec := e.get(k); rec.LastError != end.ErrorClass || rec.UnknownStep != end.Step {
			e.Errorf("error class or step came back changed: %q, %q", rec.LastError, rec.UnknownStep)
		}
		// A retracted claim leaves scope and name unchanged, too.
		k.ID = k.ID[:0] + "r"
		e.release(byNonce(claimReq(k)))
		if rec := e.get(k); rec.Scope != k.Scope || rec.Name != k.ID {
			e.Errorf("a release by nonce left another scope or name")
		}
	}
	// The bytes of an ID are anything.
	for _, b := range []byte{0, 0x27, 0x80, 0xff} {
		req := claimReq(e.key())
		copy(req.ID[:], bytes.Repeat([]byte{b}, len(req.ID)))
		a := attemptOf(e, req, e.decided(req, driver.DecideClaimed))
		if res := e.look(req.ID); !res.Found || res.Record.ID != req.ID {
			e.Errorf("a record whose ID is all %#x is found: %v", b, res.Found)
		}
		a.completed("done")
		e.decided(a.taking(driver.TakeNone), driver.DecideReplay)
	}
}

func checkLookalikes(e *env) {
	var keys []everonce.Key
	for _, id := range []string{"order", "Order", "order ", " order", "ORDER", "ordér", "orde\u0301r", "order\u200b", "o%", "o_"} {
		keys = append(keys, everonce.Key{Scope: e.scope, ID: id})
	}
	keys = append(keys, everonce.Key{Scope: driver.ScopeOf(string(e.scope), "a"), ID: "bc"}, everonce.Key{Scope: driver.ScopeOf(string(e.scope), "ab"), ID: "c"})
	for i, k := range keys {
		a := e.claimed(claimReq(k))
		a.completed(fmt.Sprint(i))
	}
	for i, k := range keys {
		res := e.decided(claimReq(k), driver.DecideReplay)
		if res.Record.Name != k.ID || string(res.Record.Result.Data) != fmt.Sprint(i) {
			e.Errorf("key %d is answered with another's result", i)
		}
	}
}

func checkResults(e *env) {
	every := make([]byte, 256)
	for i := range every {
		every[i] = byte(i)
	}
	largest := make([]byte, min(e.caps.MaxResult, 16<<20))
	for i := range largest {
		largest[i] = byte(i * 131 >> 3)
	}
	for _, res := range []driver.SavedResult{
		{Kind: driver.ResultValue, Codec: "raw", Data: nil},
		{Kind: driver.ResultValue, Codec: "raw", Data: []byte{}},
		{Kind: driver.ResultValue, Codec: "raw", Data: []byte{0}},
		{Kind: driver.ResultValue, Codec: "custom", Data: every, Summary: every},
		{Kind: driver.ResultValue, Codec: "json", Data: largest, Summary: largest[:min(len(largest), driver.MaxSummaryLen)]},
		{Kind: driver.ResultFailure, Codec: "failure/1", Data: []byte(`{"code":"declined"}`), Summary: []byte("declined")},
		{Kind: driver.ResultElided, Codec: "json", Summary: []byte("200")},
		{Kind: driver.ResultElided},
	} {
		a := e.claimed(claimReq(e.key()))
		req := a.completion("")
		req.Result = res
		if _, err := e.s.Complete(e.ctx, req); err != nil {
			e.Fatalf("Complete with %v of %d bytes: %v", res.Kind, len(res.Data), err)
		}
		want := e.get(a.key())
		want.Result = res
		e.same(fmt.Sprintf("%v of %d bytes, read", res.Kind, len(res.Data)), e.get(a.key()), want)
		replay := e.decided(a.taking(driver.TakeNone), driver.DecideReplay)
		want.Steps = replay.Record.Steps
		e.same(fmt.Sprintf("%v of %d bytes, replayed", res.Kind, len(res.Data)), replay.Record, want)
	}
}

func checkTooLarge(e *env) {
	a := e.claimed(claimReq(e.key()))
	before := e.get(a.key())
	req := a.completion("")
	req.Result.Data = make([]byte, e.caps.MaxResult+1)
	_, err := e.s.Complete(e.ctx, req)
	e.is("Complete with a byte too many", err, driver.ErrTooLarge)
	e.same("the record", e.get(a.key()), before)
	req.Result = driver.SavedResult{Kind: driver.ResultElided, Summary: []byte("200")}
	_, err = e.s.Complete(e.ctx, req)
	e.is("Complete elided", err, nil)
	e.decided(a.taking(driver.TakeNone), driver.DecideReplay)
}

// checkErrorTexts provokes every error that a healthy store has, with keys and values that a log must not hold.
func checkErrorTexts(e *env) {
	const secret = "s3cret"
	k := everonce.Key{Scope: driver.ScopeOf(string(e.scope), secret), ID: secret}
	a := e.claimed(claimReq(k))
	var errs []error
	note := func(err error) { errs = append(errs, err) }
	forged := *a
	forged.rec.Token++
	note(forged.complete(secret))
	note(forged.renew(forged.renewal()))
	note(forged.step(forged.stepping("step", driver.StepOpen)))
	for i := range driver.MaxSteps + 1 {
		if err := a.step(a.stepping(fmt.Sprint(secret, i), driver.StepOpen)); err != nil {
			note(err)
		}
	}
	if e.caps.RefusesLarger {
		req := a.completion("")
		req.Result.Data = bytes.Repeat([]byte(secret), e.caps.MaxResult/len(secret)+1)
		_, err := e.s.Complete(e.ctx, req)
		note(err)
	}
	ended, cancel := context.WithCancel(e.ctx)
	cancel()
	_, err := e.s.Claim(ended, claimReq(k))
	note(err)
	_, err = e.s.Complete(ended, a.completion(secret))
	note(err)
	a.released(driver.StateReleased)
	_, err = e.s.Claim(e.ctx, a.req)
	note(err)
	refusals := 0
	for _, err := range errs {
		if err == nil {
			continue
		}
		if refusals++; strings.Contains(err.Error(), secret) {
			e.Errorf("an error quotes the key or the value: %s", strings.ReplaceAll(err.Error(), secret, "<secret>"))
		}
	}
	if refusals < 5 {
		e.Errorf("only %d calls were refused: %v", refusals, errors.Join(errs...))
	}
}
