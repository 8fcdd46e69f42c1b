package transition_test

import (
	"errors"
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/driver/transition"
)

var (
	t0     = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	mine   = driver.Nonce{1}
	other  = driver.Nonce{2}
	life   = driver.Lifetime{Retention: time.Hour, Remember: 2 * time.Hour}
	print1 = driver.Fingerprint{Alg: "a/1", Sum: [32]byte{1}}
	print2 = driver.Fingerprint{Alg: "a/1", Sum: [32]byte{2}}
	print3 = driver.Fingerprint{Alg: "b/1", Sum: [32]byte{3}}
)

const lease = time.Minute

func claimBy(n driver.Nonce) driver.ClaimRequest {
	return driver.ClaimRequest{
		ID: driver.RecordID{9}, Scope: "shop/charge", Name: "order-7", Nonce: n, Owner: fmt.Sprint("owner-", n[0]),
		Lease: lease, Fingerprint: print1, Lifetime: life,
	}
}

// claimed returns a record that mine claimed at t0.
func claimed(t *testing.T) *driver.Record {
	t.Helper()
	return mustClaim(t, nil, claimBy(mine), t0)
}

func mustClaim(t *testing.T, rec *driver.Record, req driver.ClaimRequest, now time.Time) *driver.Record {
	t.Helper()
	before := snapshot(rec)
	next, res, err := transition.Claim(rec, req, now)
	if err != nil || res.Decision != driver.DecideClaimed || next == nil {
		t.Fatalf("Claim: %v, %v, next %v; want claimed", res.Decision, err, next)
	}
	if !reflect.DeepEqual(*next, res.Record) {
		t.Fatalf("the answer's record is not the next one:\n%+v\n%+v", res.Record, *next)
	}
	unchanged(t, rec, before)
	return next
}

func mustRelease(t *testing.T, rec *driver.Record, req driver.ReleaseRequest, now time.Time) *driver.Record {
	t.Helper()
	before := snapshot(rec)
	next, res, err := transition.Release(rec, req, now)
	if err != nil || res.Superseded || next == nil {
		t.Fatalf("Release: %+v, %v, next %v; want written", res, err, next)
	}
	unchanged(t, rec, before)
	return next
}

func mustComplete(t *testing.T, rec *driver.Record, now time.Time) *driver.Record {
	t.Helper()
	before := snapshot(rec)
	next, err := transition.Complete(rec, completion(rec), now)
	if err != nil || next == nil {
		t.Fatalf("Complete: %v, next %v; want written", err, next)
	}
	unchanged(t, rec, before)
	return next
}

func mustStep(t *testing.T, rec *driver.Record, step driver.StepRecord, now time.Time) *driver.Record {
	t.Helper()
	before := snapshot(rec)
	next, err := transition.SaveStep(rec, stepWrite(rec, step), now)
	if err != nil || next == nil {
		t.Fatalf("SaveStep: %v, next %v; want written", err, next)
	}
	unchanged(t, rec, before)
	return next
}

func completion(rec *driver.Record) driver.CompleteRequest {
	return driver.CompleteRequest{
		ID: rec.ID, Token: rec.Token, Nonce: rec.Nonce, Lifetime: life,
		Result: driver.SavedResult{Kind: driver.ResultValue, Codec: "raw", Data: []byte("receipt"), Summary: []byte("200")},
	}
}

func releasing(rec *driver.Record, state driver.State) driver.ReleaseRequest {
	return driver.ReleaseRequest{ID: rec.ID, Token: rec.Token, Nonce: rec.Nonce, State: state, ErrorClass: "timeout", Lifetime: life}
}

func byNonce(n driver.Nonce) driver.ReleaseRequest {
	return driver.ReleaseRequest{ID: driver.RecordID{9}, Scope: "shop/charge", Name: "order-7", Nonce: n, State: driver.StateReleased, Lifetime: life}
}

func stepWrite(rec *driver.Record, step driver.StepRecord) driver.SaveStepRequest {
	if step.Attempt == 0 {
		step.Attempt = rec.Attempt
	}
	return driver.SaveStepRequest{ID: rec.ID, Token: rec.Token, Nonce: rec.Nonce, Step: step, Lease: lease, Lifetime: life}
}

func snapshot(rec *driver.Record) *driver.Record {
	if rec == nil {
		return nil
	}
	c := *rec
	c.Steps = append([]driver.StepRecord(nil), rec.Steps...)
	c.Result.Data = append([]byte(nil), rec.Result.Data...)
	return &c
}

func unchanged(t *testing.T, rec, before *driver.Record) {
	t.Helper()
	if rec == nil {
		return
	}
	if len(rec.Steps) == 0 {
		before.Steps = rec.Steps
	}
	if len(rec.Result.Data) == 0 {
		before.Result.Data = rec.Result.Data
	}
	if !reflect.DeepEqual(rec, before) {
		t.Fatalf("the given record was changed:\n was %+v\n is  %+v", *before, *rec)
	}
}

func equal(t *testing.T, what string, got, want any) {
	t.Helper()
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%s is %v, want %v", what, got, want)
	}
}

func isErr(t *testing.T, what string, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("%s: %v, want %v", what, err, want)
	}
}
