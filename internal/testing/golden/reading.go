package golden

import (
	"encoding/json"
	"errors"
	"regexp"
	"testing"
	"time"

	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/driver/transition"
)

// reading reads a stored record, and continues its operation.
type reading struct {
	*testing.T
	h      Harness
	c      testCase
	want   driver.Record
	stored string
}

func (r *reading) run() {
	if r.want.Format == 0 {
		r.Fatal("records.txt does not say what it means")
	}
	r.h.Load(r.want.ID, r.stored)
	r.read()
	r.listed()
	for take, want := range map[driver.TakeOver]driver.Decision{
		driver.TakeNone: r.c.decided, driver.TakeAbandoned: r.c.taken, driver.TakeToSettle: r.c.settled, driver.TakeForced: 0,
	} {
		r.claimed(r.claim(take), want)
	}
	if r.want.Fingerprint.Alg != "" {
		other := r.claim(driver.TakeForced)
		other.Fingerprint.Sum[0]++
		r.claimed(other, driver.DecideMismatch)
	}
	again := r.claim(driver.TakeNone)
	again.Nonce = r.want.Nonce
	r.claimed(again, 0)
	if r.want.State == driver.StateClaimed {
		r.held()
	}
}

func (r *reading) read() {
	r.Helper()
	got, err := r.h.Store.Get(r.Context(), driver.GetRequest{ID: r.want.ID})
	if err != nil || !got.Found {
		r.Fatalf("Get: found %v, %v", got.Found, err)
	}
	r.same("Get", got.Record, r.want, got.Now)
}

func (r *reading) listed() {
	r.Helper()
	all, err := r.h.Store.(driver.Lister).List(r.Context(), driver.ListRequest{Scope: r.want.Scope, Name: r.want.Name, Steps: true})
	if err != nil || len(all.Records) != 1 {
		r.Fatalf("List: %d records, %v", len(all.Records), err)
	}
	got, want := all.Records[0], r.want
	got.Result, want.Result = driver.SavedResult{}, driver.SavedResult{}
	r.same("List", got, want, all.Now)
}

// claim returns the request of an attempt that comes later, with the record's fingerprint.
func (r *reading) claim(take driver.TakeOver) driver.ClaimRequest {
	return driver.ClaimRequest{
		ID: r.want.ID, Scope: r.want.Scope, Name: r.want.Name, Nonce: nonce(9), Owner: "host-9", Lease: lease, Lifetime: web,
		Take: take, Fingerprint: r.want.Fingerprint,
	}
}

// claimed claims the record, and compares the answer with the answer that the intended record gives. A decision of 0
// stands for whatever the intended record gives.
func (r *reading) claimed(req driver.ClaimRequest, decision driver.Decision) {
	r.Helper()
	r.h.Load(r.want.ID, r.stored)
	got, err := r.h.Store.Claim(r.Context(), req)
	_, want, refused := transition.Claim(&r.want, req, got.Now)
	switch {
	case refused != nil:
		if !errors.Is(err, refused) {
			r.Errorf("a claim (take over: %d): %v, want %v", req.Take, err, refused)
		}
		return
	case err != nil:
		r.Errorf("a claim (take over: %d): %v", req.Take, err)
		return
	case got.Decision != want.Decision || decision != 0 && got.Decision != decision:
		r.Errorf("a claim (take over: %d): %v, want %v", req.Take, got.Decision, decision)
		return
	}
	switch got.Decision {
	case driver.DecideClaimed, driver.DecideAbandoned:
	default: // these answers need no steps
		got.Record.Steps, want.Record.Steps = nil, nil
	}
	if got.Decision != driver.DecideReplay { // nor is a result that is not replayed
		got.Record.Result, want.Record.Result = driver.SavedResult{}, driver.SavedResult{}
	}
	r.same("a claim that is answered "+got.Decision.String(), got.Record, want.Record, got.Now)
}

// held continues the attempt in a process of this version that has replaced the one that wrote the record.
func (r *reading) held() {
	r.Helper()
	ctx, s, rec := r.Context(), r.h.Store, r.want
	r.h.Load(rec.ID, r.stored)
	_, err := s.Renew(ctx, driver.RenewRequest{ID: rec.ID, Token: rec.Token, Nonce: rec.Nonce, Lease: lease, Lifetime: web})
	if err == nil {
		_, err = s.SaveStep(ctx, driver.SaveStepRequest{
			ID: rec.ID, Token: rec.Token, Nonce: rec.Nonce, Lease: lease, Lifetime: web,
			Step: driver.StepRecord{Name: "mail", State: driver.StepDone, Attempt: rec.Attempt, Result: value()},
		})
	}
	if err == nil {
		_, err = s.Complete(ctx, driver.CompleteRequest{ID: rec.ID, Token: rec.Token, Nonce: rec.Nonce, Result: failure(), Lifetime: web})
	}
	if err != nil {
		r.Fatalf("the attempt goes on: %v", err)
	}
	got, err := s.Get(ctx, driver.GetRequest{ID: rec.ID})
	if err != nil || got.Record.State != driver.StateCompleted {
		r.Fatalf("the attempt has ended: %v, %v", got.Record.State, err)
	}
	mail, _ := got.Record.Step("mail")
	r.equal("what the attempt leaves", normal(got.Record.Result), normal(failure()))
	r.equal("what its step leaves", normal(mail.Result), normal(value()))
	if before, there := rec.Step("mail"); there {
		r.equal("when the step began", mail.BeganAt, before.BeganAt)
	}
	r.equal("when the record began", got.Record.CreatedAt, rec.CreatedAt)
}

// same fails unless two records mean the same at a time. Of a tombstone it compares what every purge leaves.
func (r *reading) same(what string, got, want driver.Record, now time.Time) {
	r.Helper()
	for _, rec := range []*driver.Record{&got, &want} {
		rec.Result = normal(rec.Result)
		if rec.StateAt(now) == driver.StateTombstone {
			rec.Result.Codec, rec.Result.Data, rec.Steps = "", []byte{}, nil
		}
		steps := make([]driver.StepRecord, 0, len(rec.Steps))
		for _, s := range rec.Steps {
			s.Result = normal(s.Result)
			steps = append(steps, s)
		}
		rec.Steps = steps
	}
	r.equal(what, got, want)
}

// normal has no difference between none and empty bytes: not every store keeps them apart.
func normal(res driver.SavedResult) driver.SavedResult {
	res.Data, res.Summary = append([]byte{}, res.Data...), append([]byte{}, res.Summary...)
	return res
}

func (r *reading) equal(what string, got, want any) {
	r.Helper()
	if g, w := text(got), text(want); g != w {
		r.Errorf("%s: it is\n%s\nwant\n%s", what, g, w)
	}
}

// text is a record as the files have it: its JSON, with each array of numbers in a line.
func text(v any) string {
	b, err := json.MarshalIndent(v, "", "\t")
	if err != nil {
		return err.Error()
	}
	return lastNumber.ReplaceAllString(aNumber.ReplaceAllString(string(b), "$1"), "$1]") + "\n"
}

var (
	aNumber    = regexp.MustCompile(`\n\t+(\d+)`)
	lastNumber = regexp.MustCompile(`(\d)\n\t+\]`)
)
