package transition_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/driver/transition"
)

func TestRenew(t *testing.T) {
	expiring := claimBy(mine)
	expiring.ExpireUnsettled = true
	for _, req := range []driver.ClaimRequest{claimBy(mine), expiring} {
		held := mustClaim(t, nil, req, t0)
		at := t0.Add(3 * lease) // lapsed
		next, err := transition.Renew(held, renewal(held), at)
		isErr(t, "Renew", err, nil)
		want := *held
		want.LeaseUntil, want.UpdatedAt = at.Add(lease), at
		if req.ExpireUnsettled {
			want.PurgeAt = at.Add(life.Total())
		}
		equal(t, "record", *next, want)
	}
}

func TestRenewAndSaveStepRefused(t *testing.T) {
	held := claimed(t)
	wrongToken, wrongNonce := *held, *held
	wrongToken.Token++
	wrongNonce.Nonce = other
	for _, c := range []struct {
		name string
		rec  *driver.Record
		by   *driver.Record
	}{
		{"absent", nil, held},
		{"token", held, &wrongToken},
		{"nonce", held, &wrongNonce},
		{"released", mustRelease(t, held, releasing(held, driver.StateReleased), t0), held},
		{"abandoned", mustRelease(t, held, releasing(held, driver.StateAbandoned), t0), held},
		{"completed", mustComplete(t, held, t0), held},
	} {
		t.Run(c.name, func(t *testing.T) {
			before := snapshot(c.rec)
			next, err := transition.Renew(c.rec, renewal(c.by), t0)
			isErr(t, "Renew", err, driver.ErrLeaseLost)
			equal(t, "written", next != nil, false)
			next, err = transition.SaveStep(c.rec, stepWrite(c.by, driver.StepRecord{Name: "mail", State: driver.StepOpen}), t0)
			isErr(t, "SaveStep", err, driver.ErrLeaseLost)
			equal(t, "written", next != nil, false)
			unchanged(t, c.rec, before)
		})
	}
}

func renewal(rec *driver.Record) driver.RenewRequest {
	return driver.RenewRequest{ID: rec.ID, Token: rec.Token, Nonce: rec.Nonce, Lease: lease, Lifetime: life}
}

func TestSaveStep(t *testing.T) {
	open := driver.StepRecord{Name: "mail", State: driver.StepOpen}
	done := driver.StepRecord{Name: "mail", State: driver.StepDone, Result: driver.SavedResult{Kind: driver.ResultValue, Codec: "raw", Data: []byte("id")}}
	notDone := driver.StepRecord{Name: "mail", State: driver.StepNotDone}
	at := func(s int) time.Time { return t0.Add(time.Duration(s) * time.Second) }

	rec := mustStep(t, claimed(t), open, at(1))
	equal(t, "begun", rec.Steps, []driver.StepRecord{{Name: "mail", State: driver.StepOpen, Attempt: 1, BeganAt: at(1)}})
	equal(t, "LeaseUntil", rec.LeaseUntil, at(1).Add(lease))
	equal(t, "UpdatedAt", rec.UpdatedAt, at(1))

	rec = mustStep(t, rec, driver.StepRecord{Name: "hook", State: driver.StepOpen}, at(2))
	rec = mustStep(t, rec, notDone, at(3))
	equal(t, "names", []string{rec.Steps[0].Name, rec.Steps[1].Name}, []string{"mail", "hook"})
	equal(t, "ended", rec.Steps[0], driver.StepRecord{Name: "mail", State: driver.StepNotDone, Attempt: 1, BeganAt: at(1), EndedAt: at(3)})

	late := mustStep(t, rec, open, at(4)) // a delayed packet of the beginning
	equal(t, "after a late beginning", late.Steps, rec.Steps)
	equal(t, "LeaseUntil after it", late.LeaseUntil, at(4).Add(lease))

	second := rec
	rel := mustRelease(t, second, releasing(second, driver.StateReleased), at(5))
	second = mustClaim(t, rel, claimBy(other), at(5))
	second = mustStep(t, second, open, at(6))
	equal(t, "begun again", second.Steps[0], driver.StepRecord{Name: "mail", State: driver.StepOpen, Attempt: 2, BeganAt: at(1)})
	second = mustStep(t, second, done, at(7))
	want := done
	want.Attempt, want.BeganAt, want.EndedAt = 2, at(1), at(7)
	equal(t, "done", second.Steps[0], want)
	for _, late := range []driver.StepRecord{open, notDone, {Name: "mail", State: driver.StepDone}, {Name: "mail", State: driver.StepOpen, Attempt: 9}} {
		equal(t, "done for good", mustStep(t, second, late, at(8)).Steps[0], want)
	}
}

// A step that cannot be read blocks no write: settling overwrites it, and it keeps its place and its beginning.
func TestSaveStepOverOneThatCanNotBeRead(t *testing.T) {
	done := driver.StepRecord{Name: "mail", State: driver.StepDone, Result: driver.SavedResult{Kind: driver.ResultElided}}
	for _, spoilt := range []driver.StepRecord{
		{State: 0},
		{State: 77},
		{State: driver.StepDone},
		{State: driver.StepDone, Result: driver.SavedResult{Kind: driver.ResultElided + 1}},
		{State: driver.StepNotDone, Result: done.Result},
		{State: driver.StepOpen, Result: done.Result},
	} {
		for _, write := range []driver.StepRecord{done, {Name: "mail", State: driver.StepNotDone}, {Name: "mail", State: driver.StepOpen}} {
			rec := mustStep(t, claimed(t), driver.StepRecord{Name: "mail", State: driver.StepOpen}, t0)
			rec.Steps[0].State, rec.Steps[0].Result = spoilt.State, spoilt.Result
			equal(t, "readable before", rec.Steps[0].Readable(), false)
			got := mustStep(t, rec, write, t0.Add(time.Second)).Steps[0]
			equal(t, "readable", got.Readable(), true)
			equal(t, "state", got.State, write.State)
			equal(t, "result", got.Result, write.Result)
			equal(t, "BeganAt", got.BeganAt, t0)
		}
	}
}

func TestSaveStepWithoutLease(t *testing.T) {
	held := claimed(t)
	req := stepWrite(held, driver.StepRecord{Name: "mail", State: driver.StepOpen})
	req.Lease = 0
	next, err := transition.SaveStep(held, req, t0.Add(time.Second))
	isErr(t, "SaveStep", err, nil)
	equal(t, "LeaseUntil", next.LeaseUntil, held.LeaseUntil)
	equal(t, "UpdatedAt", next.UpdatedAt, t0.Add(time.Second))
}

func TestSaveStepLimit(t *testing.T) {
	rec := claimed(t)
	for i := range driver.MaxSteps {
		rec = mustStep(t, rec, driver.StepRecord{Name: fmt.Sprint(i), State: driver.StepOpen}, t0)
	}
	next, err := transition.SaveStep(rec, stepWrite(rec, driver.StepRecord{Name: "more", State: driver.StepOpen}), t0)
	isErr(t, "a step too many", err, driver.ErrTooLarge)
	equal(t, "written", next != nil, false)
	last := fmt.Sprint(driver.MaxSteps - 1)
	rec = mustStep(t, rec, driver.StepRecord{Name: last, State: driver.StepDone}, t0)
	equal(t, "the last step", rec.Steps[driver.MaxSteps-1].State, driver.StepDone)

	// Steps that begin at the same moment may exceed the limit in a store that decides natively: each can be ended,
	// and no other begins.
	over := *rec
	over.Steps = append(over.Steps[:len(rec.Steps):len(rec.Steps)], driver.StepRecord{Name: "over", State: driver.StepOpen})
	rec = mustStep(t, &over, driver.StepRecord{Name: "over", State: driver.StepDone}, t0)
	equal(t, "the step over the limit", rec.Steps[driver.MaxSteps].State, driver.StepDone)
	_, err = transition.SaveStep(rec, stepWrite(rec, driver.StepRecord{Name: "more", State: driver.StepOpen}), t0)
	isErr(t, "another one", err, driver.ErrTooLarge)
}

func TestSaveStepLeavesTheRecordAlone(t *testing.T) {
	rec := mustStep(t, claimed(t), driver.StepRecord{Name: "mail", State: driver.StepOpen}, t0)
	next, err := transition.SaveStep(rec, stepWrite(rec, driver.StepRecord{Name: "mail", State: driver.StepDone}), t0)
	isErr(t, "SaveStep", err, nil)
	equal(t, "the record's step", rec.Steps[0].State, driver.StepOpen)
	equal(t, "the next one's step", next.Steps[0].State, driver.StepDone)
}
