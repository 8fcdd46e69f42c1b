package golden

import (
	"testing"
	"time"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/driver"
)

// testCase is a record, and the calls that wrote it.
type testCase struct {
	name  string
	begun time.Time // of the first write
	write func(s *script)
	inTx  bool // the store must have transactions
	// The decisions on a claim with the same fingerprint: one that leaves an abandoned record alone, one that takes it
	// over, and one that settles.
	decided, taken, settled driver.Decision
}

// key is the key of the case's record: of a scope whose parts are escaped, and an ID that is not ASCII.
func (c *testCase) key() everonce.Key {
	return everonce.Key{Scope: driver.ScopeOf("müller & co", "POST /charges"), ID: `order 7, "` + c.name + `" für 1 €`}
}

// at is the time of a write in the files.
func (c *testCase) at(write int) time.Time { return c.begun.Add(time.Duration(write) * time.Second) }

func cases(t testing.TB, version int) []testCase {
	t.Helper()
	if version != 1 {
		t.Fatalf("there are no cases of version %d of the format: see the package", version)
	}
	return version1()
}

// A lease and a retention that still run when the files are read, and such that are over.
var (
	future = time.Date(2100, time.March, 4, 5, 6, 7, 0, time.UTC)
	past   = time.Date(2001, time.March, 4, 5, 6, 7, 0, time.UTC)
)

const (
	lease = 30 * time.Minute
	never = 100 * 365 * 24 * time.Hour
)

var web = driver.Lifetime{Retention: 24 * time.Hour, Remember: 6 * 24 * time.Hour}

// nonce is the n-th nonce, of 16 different bytes.
func nonce(n byte) (all driver.Nonce) {
	for i := range all {
		all[i] = n<<4 | byte(i)
	}
	return all
}

// first and second are two claims, with fingerprints of two algorithms.
func first() driver.ClaimRequest {
	return driver.ClaimRequest{Nonce: nonce(1), Owner: "host-1/714", Lease: lease, Lifetime: web, Fingerprint: driver.Fingerprint(everonce.FingerprintOf(1200, "EUR"))}
}

func second() driver.ClaimRequest {
	return driver.ClaimRequest{Nonce: nonce(2), Owner: "host-2/98", Lease: lease, Lifetime: web, Fingerprint: driver.Fingerprint(everonce.FingerprintJSON("1200 EUR"))}
}

func value() driver.SavedResult {
	return driver.SavedResult{Kind: driver.ResultValue, Codec: "json", Data: []byte(`{"receipt":"r-1"}`), Summary: []byte("r-1\x00\xff")}
}

func failure() driver.SavedResult {
	return driver.SavedResult{Kind: driver.ResultFailure, Codec: "failure/1", Data: []byte(`{"code":"card_declined","message":"no funds"}`), Summary: []byte("card_declined")}
}

func version1() []testCase {
	const claimed, replay, expired, running, abandoned, released = driver.DecideClaimed, driver.DecideReplay, driver.DecideExpired,
		driver.DecideInProgress, driver.DecideAbandoned, driver.DecideReleased
	open := driver.StepRecord{Name: "mail", State: driver.StepOpen}
	return []testCase{
		{"claimed", future, func(s *script) { s.claim(first()) }, false, running, running, running},
		{"claimed and renewed", future, func(s *script) { s.claim(first()); s.renew() }, false, running, running, running},
		{"claimed without fingerprint and owner, expiring", future, func(s *script) {
			s.claim(driver.ClaimRequest{Nonce: nonce(1), Lease: lease, Lifetime: web, ExpireUnsettled: true})
			s.renew()
		}, false, running, running, running},
		{"claimed, with steps", future, withSteps, false, running, running, running},
		{"claimed, with a step that renews nothing", future, func(s *script) { s.claim(first()); s.step(open, 0) }, false, running, running, running},
		{"lapsed", past, func(s *script) { s.claim(first()); s.step(open, lease) }, false, abandoned, claimed, claimed},
		{"released", future, func(s *script) {
			s.claim(first())
			s.step(driver.StepRecord{Name: "charge", State: driver.StepDone, Result: value()}, lease)
			s.release(driver.ReleaseRequest{State: driver.StateReleased, ErrorClass: "not_done"})
		}, false, claimed, claimed, released},
		{"released by nonce, before any claim", future, func(s *script) {
			s.release(driver.ReleaseRequest{Nonce: nonce(3), State: driver.StateReleased, ErrorClass: "claim"})
		}, false, claimed, claimed, released},
		{"released by the nonce of a claim that comes later", future, func(s *script) {
			s.claim(first())
			s.release(driver.ReleaseRequest{State: driver.StateReleased, ErrorClass: "error"})
			s.release(driver.ReleaseRequest{Nonce: nonce(3), State: driver.StateReleased, ErrorClass: "claim"})
		}, false, claimed, claimed, released},
		{"claimed again", future, func(s *script) {
			s.claim(first())
			s.step(driver.StepRecord{Name: "charge", State: driver.StepNotDone}, lease)
			s.release(driver.ReleaseRequest{State: driver.StateReleased, ErrorClass: "deadline"})
			s.claim(second())
			s.step(driver.StepRecord{Name: "charge", State: driver.StepOpen}, lease)
		}, false, running, running, running},
		{"claimed again without a fingerprint", future, func(s *script) {
			s.claim(first())
			s.release(driver.ReleaseRequest{State: driver.StateReleased, ErrorClass: "error"})
			req := second()
			req.Fingerprint = driver.Fingerprint{}
			s.claim(req)
		}, false, running, running, running},
		{"abandoned", past, func(s *script) {
			s.claim(first())
			s.release(driver.ReleaseRequest{State: driver.StateAbandoned, ErrorClass: "panic"})
		}, false, abandoned, claimed, claimed},
		{"abandoned, expiring", future, func(s *script) {
			s.claim(first())
			s.release(driver.ReleaseRequest{State: driver.StateAbandoned, ErrorClass: "lease_lost", ExpireUnsettled: true})
		}, false, abandoned, claimed, claimed},
		{"abandoned, with an unknown step", past, func(s *script) {
			s.claim(first())
			s.step(open, lease)
			s.release(driver.ReleaseRequest{State: driver.StateAbandoned, ErrorClass: "step_unknown", Step: "mail"})
		}, false, abandoned, abandoned, claimed},
		{"taken over", future, func(s *script) {
			s.claim(first())
			s.release(driver.ReleaseRequest{State: driver.StateAbandoned, ErrorClass: "canceled"})
			req := second()
			req.Take = driver.TakeAbandoned
			s.claim(req)
		}, false, running, running, running},
		{"taken over to be settled, with an unknown step", past, func(s *script) {
			s.claim(first())
			s.step(open, lease)
			s.release(driver.ReleaseRequest{State: driver.StateAbandoned, ErrorClass: "step_unknown", Step: "mail"})
			req := second()
			req.Take = driver.TakeToSettle
			s.claim(req)
		}, false, abandoned, abandoned, claimed},
		{"taken over by force", future, func(s *script) {
			s.claim(first())
			req := second()
			req.Take = driver.TakeForced
			s.claim(req)
		}, false, running, running, running},
		{"completed", future, func(s *script) { s.claim(first()); s.complete(value(), web) }, false, replay, replay, replay},
		{"completed, with nothing that can be left out", future, func(s *script) {
			s.claim(driver.ClaimRequest{Nonce: nonce(1), Lease: lease, Lifetime: web})
			s.complete(driver.SavedResult{Kind: driver.ResultValue, Codec: "raw", Data: []byte{}}, web)
		}, false, replay, replay, replay},
		{"completed, with steps", future, func(s *script) { withSteps(s); s.complete(value(), web) }, false, replay, replay, replay},
		{"completed in the second attempt", future, func(s *script) {
			s.claim(first())
			s.release(driver.ReleaseRequest{State: driver.StateAbandoned, ErrorClass: "error"})
			req := second()
			req.Take = driver.TakeAbandoned
			s.claim(req)
			s.complete(value(), web)
		}, false, replay, replay, replay},
		{"refused for good", future, func(s *script) { s.claim(first()); s.complete(failure(), web) }, false, replay, replay, replay},
		{"elided", future, func(s *script) {
			s.claim(first())
			s.complete(driver.SavedResult{Kind: driver.ResultElided, Codec: "http/1", Summary: []byte("r-1")}, web)
		}, false, replay, replay, replay},
		{"elided, without a summary", future, func(s *script) {
			s.claim(first())
			s.complete(driver.SavedResult{Kind: driver.ResultElided}, web)
		}, false, replay, replay, replay},
		{"a tombstone", past, func(s *script) {
			withSteps(s)
			s.complete(value(), driver.Lifetime{Retention: time.Millisecond, Remember: never})
			s.purge()
		}, false, expired, expired, expired},
		{"a tombstone that no purge has met", past, func(s *script) {
			s.claim(first())
			s.complete(value(), driver.Lifetime{Retention: time.Hour, Remember: never})
		}, false, expired, expired, expired},
		{"completed in a transaction", future, func(s *script) { s.transact(inTx(), value(), false) }, true, replay, replay, replay},
		{"completed in an optimistic transaction", future, func(s *script) { s.transact(inTx(), failure(), true) }, true, replay, replay, replay},
		{"completed in a transaction, after a release", future, func(s *script) {
			s.claim(second())
			s.release(driver.ReleaseRequest{State: driver.StateReleased, ErrorClass: "not_done"})
			s.transact(inTx(), value(), false)
		}, true, replay, replay, replay},
	}
}

func inTx() driver.ClaimRequest {
	req := first()
	req.Lease, req.Take = 0, driver.TakeAbandoned
	return req
}

// withSteps claims, and leaves a step in each state and with each kind of result.
func withSteps(s *script) {
	s.claim(first())
	for _, step := range []driver.StepRecord{
		{Name: "mail", State: driver.StepOpen},
		{Name: "charge", State: driver.StepOpen},
		{Name: "charge", State: driver.StepDone, Result: value()},
		{Name: "an ä, which is not done", State: driver.StepNotDone},
		{Name: "refused", State: driver.StepDone, Result: failure()},
		{Name: "elided", State: driver.StepDone, Result: driver.SavedResult{Kind: driver.ResultElided, Summary: []byte("r-2")}},
		{Name: "empty", State: driver.StepDone, Result: driver.SavedResult{Kind: driver.ResultValue, Codec: "raw", Data: []byte{}}},
	} {
		s.step(step, lease)
	}
}
