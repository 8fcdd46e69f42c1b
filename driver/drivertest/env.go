package drivertest

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/driver"
)

// reporter receives a check's findings: a testing.T, a rapid.T, or a recorder that watches a check fail on a
// planted bug.
type reporter interface {
	Helper()
	Logf(format string, args ...any)
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
}

// Times of the suite. Whatever must still hold when the next statement runs is given a long time, and
// whatever must be over a short one.
const (
	long  = time.Hour
	short = 5 * time.Millisecond
	// hung is how long a check may take: only a store that hangs needs it. On a machine that is busy with twenty
	// other things, three minutes were not enough for thousands of calls of a server.
	hung = 10 * time.Minute
)

// env is one check's world: a store, and a scope that no other check uses.
type env struct {
	reporter
	ctx   context.Context
	h     Harness
	s     driver.Store
	caps  Capabilities
	scope driver.Scope
	keys  *atomic.Int64
	// after runs a function when the check has ended, however it did.
	after func(func())
}

func newEnv(t testing.TB, h Harness, caps Capabilities) *env {
	t.Helper()
	if h.Store == nil {
		t.Fatal("drivertest: the factory returned a harness without a store")
	}
	if h.Peer == nil {
		h.Peer = h.Store
	}
	ctx, cancel := context.WithTimeout(context.Background(), hung)
	t.Cleanup(cancel)
	return &env{reporter: t, ctx: ctx, h: h, s: h.Store, caps: caps, scope: driver.Scope("suite-" + random()), keys: new(atomic.Int64), after: t.Cleanup}
}

// to returns the same world, reporting to r and calling the store s.
func (e *env) to(r reporter, s driver.Store) *env {
	c := *e
	c.reporter, c.s = r, s
	return &c
}

func random() string {
	var b [8]byte
	_, _ = rand.Read(b[:]) // it does not fail
	return hex.EncodeToString(b[:])
}

// key returns a key that was never used.
func (e *env) key() everonce.Key {
	return everonce.Key{Scope: e.scope, ID: fmt.Sprintf("key-%d", e.keys.Add(1))}
}

// claimReq returns a request to claim the key, by a new nonce.
func claimReq(k everonce.Key) driver.ClaimRequest {
	return driver.ClaimRequest{
		ID: k.RecordID(), Scope: k.Scope, Name: k.ID, Nonce: driver.NewNonce(), Owner: "suite", Lease: long,
		Fingerprint: fingerprintA, Lifetime: forLong,
	}
}

var (
	sumA         = everonce.FingerprintOf("a")
	fingerprintA = driver.Fingerprint(sumA)
	fingerprintB = driver.Fingerprint(everonce.FingerprintOf("b"))
	otherAlg     = driver.Fingerprint{Alg: "other/1", Sum: [32]byte{7}}
	forLong      = driver.Lifetime{Retention: long, Remember: long}
)

// attempt is a claim that was granted, with the requests that its owner may send.
type attempt struct {
	e   *env
	req driver.ClaimRequest
	rec driver.Record
}

// claim sends a claim that must be answered.
func (e *env) claim(req driver.ClaimRequest) driver.ClaimResult {
	e.Helper()
	res, err := e.s.Claim(e.ctx, req)
	if err != nil {
		e.Fatalf("Claim: %v", err)
	}
	return res
}

// claimed sends a claim that must be granted.
func (e *env) claimed(req driver.ClaimRequest) *attempt {
	e.Helper()
	res := e.claim(req)
	if res.Decision != driver.DecideClaimed {
		e.Fatalf("Claim: %v, want claimed", res.Decision)
	}
	return &attempt{e: e, req: req, rec: res.Record}
}

// decided sends a claim that must be answered with one decision.
func (e *env) decided(req driver.ClaimRequest, want driver.Decision) driver.ClaimResult {
	e.Helper()
	res := e.claim(req)
	if res.Decision != want {
		e.Fatalf("Claim: %v, want %v", res.Decision, want)
	}
	return res
}

// claimFails sends a claim that must be refused with an error.
func (e *env) claimFails(req driver.ClaimRequest, want error) {
	e.Helper()
	if res, err := e.s.Claim(e.ctx, req); !errors.Is(err, want) {
		e.Fatalf("Claim: %v, error %v; want the error %q", res.Decision, err, want)
	}
}

// get reads a record that must exist.
func (e *env) get(k everonce.Key) driver.Record {
	e.Helper()
	res := e.look(k.RecordID())
	if !res.Found {
		e.Fatalf("Get: the record is not found")
	}
	return res.Record
}

// absent reads a record that must not exist.
func (e *env) absent(k everonce.Key) {
	e.Helper()
	if res := e.look(k.RecordID()); res.Found {
		e.Fatalf("Get: the record is found, %v; want none", res.Record.State)
	}
}

func (e *env) look(id driver.RecordID) driver.GetResult {
	e.Helper()
	res, err := e.s.Get(e.ctx, driver.GetRequest{ID: id})
	if err != nil {
		e.Fatalf("Get: %v", err)
	}
	return res
}

// now returns the store's time.
func (e *env) now() time.Time {
	e.Helper()
	return e.look(driver.RecordID{}).Now
}

// pass lets the store's clock pass by d: by moving it, or by waiting until it says so itself.
func (e *env) pass(d time.Duration) {
	e.Helper()
	if e.h.Advance != nil {
		e.h.Advance(d)
		return
	}
	until := e.now().Add(d)
	poll := time.NewTicker(time.Millisecond)
	defer poll.Stop()
	for e.now().Before(until) {
		select {
		case <-poll.C:
		case <-e.ctx.Done():
			e.Fatalf("the store's clock did not move by %v: %v", d, e.ctx.Err())
		}
	}
}

// purge removes all that can be removed, and returns what that was.
func (e *env) purge() (sum driver.PurgeResult) {
	e.Helper()
	for {
		res, err := e.s.Purge(e.ctx, driver.PurgeRequest{Limit: 100})
		if err != nil {
			e.Fatalf("Purge: %v", err)
		}
		sum.Results += res.Results
		sum.Records += res.Records
		if !res.More {
			return sum
		}
	}
}

// lapse lets the attempt's lease run out.
func (a *attempt) lapse() {
	a.e.Helper()
	req := a.renewal()
	req.Lease = short
	if err := a.renew(req); err != nil {
		a.e.Fatalf("Renew: %v", err)
	}
	a.e.pass(short)
}

func (a *attempt) renewal() driver.RenewRequest {
	return driver.RenewRequest{ID: a.req.ID, Token: a.rec.Token, Nonce: a.rec.Nonce, Lease: long, Lifetime: a.req.Lifetime}
}

func (a *attempt) renew(req driver.RenewRequest) error {
	_, err := a.e.s.Renew(a.e.ctx, req)
	return err
}

func value(data string) driver.SavedResult {
	return driver.SavedResult{Kind: driver.ResultValue, Codec: "raw", Data: []byte(data), Summary: []byte("summary")}
}

func (a *attempt) completion(data string) driver.CompleteRequest {
	return driver.CompleteRequest{ID: a.req.ID, Token: a.rec.Token, Nonce: a.rec.Nonce, Result: value(data), Lifetime: a.req.Lifetime}
}

func (a *attempt) complete(data string) error {
	_, err := a.e.s.Complete(a.e.ctx, a.completion(data))
	return err
}

// completed saves a result that must be accepted.
func (a *attempt) completed(data string) {
	a.e.Helper()
	if err := a.complete(data); err != nil {
		a.e.Fatalf("Complete: %v", err)
	}
}

func (a *attempt) releasing(state driver.State) driver.ReleaseRequest {
	return driver.ReleaseRequest{
		ID: a.req.ID, Scope: a.req.Scope, Name: a.req.Name, Token: a.rec.Token, Nonce: a.rec.Nonce, State: state,
		ErrorClass: "timeout", Lifetime: a.req.Lifetime, ExpireUnsettled: a.req.ExpireUnsettled,
	}
}

// release sends a release that must be answered.
func (e *env) release(req driver.ReleaseRequest) driver.ReleaseResult {
	e.Helper()
	res, err := e.s.Release(e.ctx, req)
	if err != nil {
		e.Fatalf("Release: %v", err)
	}
	return res
}

// released ends the attempt, which must hold the record.
func (a *attempt) released(state driver.State) {
	a.e.Helper()
	if res := a.e.release(a.releasing(state)); res.Superseded {
		a.e.Fatalf("Release: superseded, want %v", state)
	}
}

func byNonce(req driver.ClaimRequest) driver.ReleaseRequest {
	return driver.ReleaseRequest{
		ID: req.ID, Scope: req.Scope, Name: req.Name, Nonce: req.Nonce, State: driver.StateReleased,
		ErrorClass: "retracted", Lifetime: req.Lifetime,
	}
}

func (a *attempt) stepping(name string, state driver.StepState) driver.SaveStepRequest {
	step := driver.StepRecord{Name: name, State: state, Attempt: a.rec.Attempt}
	if state == driver.StepDone {
		step.Result = value("step " + name)
	}
	return driver.SaveStepRequest{ID: a.req.ID, Token: a.rec.Token, Nonce: a.rec.Nonce, Step: step, Lease: a.req.Lease, Lifetime: a.req.Lifetime}
}

func (a *attempt) step(req driver.SaveStepRequest) error {
	_, err := a.e.s.SaveStep(a.e.ctx, req)
	return err
}

// stepped writes a step that must be accepted.
func (a *attempt) stepped(name string, state driver.StepState) {
	a.e.Helper()
	if err := a.step(a.stepping(name, state)); err != nil {
		a.e.Fatalf("SaveStep: %v", err)
	}
}

// is reports an error that is not the wanted one; a nil want is no error.
func (e *env) is(what string, err, want error) {
	e.Helper()
	if !errors.Is(err, want) {
		e.Errorf("%s: %v, want %v", what, err, want)
	}
}

// taking returns a claim of the same key by another nonce.
func (a *attempt) taking(how driver.TakeOver) driver.ClaimRequest {
	req := a.req
	req.Nonce, req.Take, req.Owner = driver.NewNonce(), how, "other"
	return req
}

// key is the attempt's.
func (a *attempt) key() everonce.Key { return everonce.Key{Scope: a.req.Scope, ID: a.req.Name} }

func leaf(name string) string {
	_, after, _ := strings.Cut(name, "/")
	return after
}

// groupsOf returns the names of the checks' groups in their order, and the checks by them.
func groupsOf(checks []check) (groups []string, byGroup map[string][]check) {
	byGroup = make(map[string][]check)
	for _, c := range checks {
		g, _, _ := strings.Cut(c.name, "/")
		if !slices.Contains(groups, g) {
			groups = append(groups, g)
		}
		byGroup[g] = append(byGroup[g], c)
	}
	slices.Sort(groups)
	return groups, byGroup
}
