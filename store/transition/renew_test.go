package transition_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/store/transition"
)

func TestRenew(t *testing.T) {
	expiring := claimBy(mine)
	expiring.ExpireUnsettled = true
	for _, req := range []everonce.ClaimRequest{claimBy(mine), expiring} {
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
		rec  *everonce.Record
		by   *everonce.Record
	}{
		{"absent", nil, held},
		{"token", held, &wrongToken},
		{"nonce", held, &wrongNonce},
		{"released", mustRelease(t, held, releasing(held, everonce.StateReleased), t0), held},
		{"abandoned", mustRelease(t, held, releasing(held, everonce.StateAbandoned), t0), held},
		{"completed", mustComplete(t, held, t0), held},
	} {
		t.Run(c.name, func(t *testing.T) {
			before := snapshot(c.rec)
			next, err := transition.Renew(c.rec, renewal(c.by), t0)
			isErr(t, "Renew", err, everonce.ErrLeaseLost)
			equal(t, "written", next != nil, false)
			next, err = transition.SaveStep(c.rec, stepWrite(c.by, everonce.StepRecord{Name: "mail", State: everonce.StepOpen}), t0)
			isErr(t, "SaveStep", err, everonce.ErrLeaseLost)
			equal(t, "written", next != nil, false)
			unchanged(t, c.rec, before)
		})
	}
}

func renewal(rec *everonce.Record) everonce.RenewRequest {
	return everonce.RenewRequest{ID: rec.ID, Token: rec.Token, Nonce: rec.Nonce, Lease: lease, Lifetime: life}
}

func TestSaveStep(t *testing.T) {
	open := everonce.StepRecord{Name: "mail", State: everonce.StepOpen}
	done := everonce.StepRecord{Name: "mail", State: everonce.StepDone, Result: everonce.SavedResult{Kind: everonce.ResultValue, Codec: "raw", Data: []byte("id")}}
	notDone := everonce.StepRecord{Name: "mail", State: everonce.StepNotDone}
	at := func(s int) time.Time { return t0.Add(time.Duration(s) * time.Second) }

	rec := mustStep(t, claimed(t), open, at(1))
	equal(t, "begun", rec.Steps, []everonce.StepRecord{{Name: "mail", State: everonce.StepOpen, Attempt: 1, BeganAt: at(1)}})
	equal(t, "LeaseUntil", rec.LeaseUntil, at(1).Add(lease))
	equal(t, "UpdatedAt", rec.UpdatedAt, at(1))

	rec = mustStep(t, rec, everonce.StepRecord{Name: "hook", State: everonce.StepOpen}, at(2))
	rec = mustStep(t, rec, notDone, at(3))
	equal(t, "names", []string{rec.Steps[0].Name, rec.Steps[1].Name}, []string{"mail", "hook"})
	equal(t, "ended", rec.Steps[0], everonce.StepRecord{Name: "mail", State: everonce.StepNotDone, Attempt: 1, BeganAt: at(1), EndedAt: at(3)})

	late := mustStep(t, rec, open, at(4)) // a delayed packet of the beginning
	equal(t, "after a late beginning", late.Steps, rec.Steps)
	equal(t, "LeaseUntil after it", late.LeaseUntil, at(4).Add(lease))

	second := rec
	rel := mustRelease(t, second, releasing(second, everonce.StateReleased), at(5))
	second = mustClaim(t, rel, claimBy(other), at(5))
	second = mustStep(t, second, open, at(6))
	equal(t, "begun again", second.Steps[0], everonce.StepRecord{Name: "mail", State: everonce.StepOpen, Attempt: 2, BeganAt: at(1)})
	second = mustStep(t, second, done, at(7))
	want := done
	want.Attempt, want.BeganAt, want.EndedAt = 2, at(1), at(7)
	equal(t, "done", second.Steps[0], want)
	for _, late := range []everonce.StepRecord{open, notDone, {Name: "mail", State: everonce.StepDone}, {Name: "mail", State: everonce.StepOpen, Attempt: 9}} {
		equal(t, "done for good", mustStep(t, second, late, at(8)).Steps[0], want)
	}
}

// What cannot be read stands in nobody's way: who settles it writes over it, and it keeps its place and its beginning.
func TestSaveStepOverOneThatCanNotBeRead(t *testing.T) {
	done := everonce.StepRecord{Name: "mail", State: everonce.StepDone, Result: everonce.SavedResult{Kind: everonce.ResultElided}}
	for _, spoilt := range []everonce.StepRecord{
		{State: 0},
		{State: 77},
		{State: everonce.StepDone},
		{State: everonce.StepDone, Result: everonce.SavedResult{Kind: everonce.ResultElided + 1}},
		{State: everonce.StepNotDone, Result: done.Result},
		{State: everonce.StepOpen, Result: done.Result},
	} {
		for _, write := range []everonce.StepRecord{done, {Name: "mail", State: everonce.StepNotDone}, {Name: "mail", State: everonce.StepOpen}} {
			rec := mustStep(t, claimed(t), everonce.StepRecord{Name: "mail", State: everonce.StepOpen}, t0)
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
	req := stepWrite(held, everonce.StepRecord{Name: "mail", State: everonce.StepOpen})
	req.Lease = 0
	next, err := transition.SaveStep(held, req, t0.Add(time.Second))
	isErr(t, "SaveStep", err, nil)
	equal(t, "LeaseUntil", next.LeaseUntil, held.LeaseUntil)
	equal(t, "UpdatedAt", next.UpdatedAt, t0.Add(time.Second))
}

func TestSaveStepLimit(t *testing.T) {
	rec := claimed(t)
	for i := range everonce.MaxSteps {
		rec = mustStep(t, rec, everonce.StepRecord{Name: fmt.Sprint(i), State: everonce.StepOpen}, t0)
	}
	next, err := transition.SaveStep(rec, stepWrite(rec, everonce.StepRecord{Name: "more", State: everonce.StepOpen}), t0)
	isErr(t, "a step too many", err, everonce.ErrTooLarge)
	equal(t, "written", next != nil, false)
	last := fmt.Sprint(everonce.MaxSteps - 1)
	rec = mustStep(t, rec, everonce.StepRecord{Name: last, State: everonce.StepDone}, t0)
	equal(t, "the last step", rec.Steps[everonce.MaxSteps-1].State, everonce.StepDone)

	// Steps that come at the same moment may be more in a store that decides by itself: each can be ended, and no other begins.
	over := *rec
	over.Steps = append(over.Steps[:len(rec.Steps):len(rec.Steps)], everonce.StepRecord{Name: "over", State: everonce.StepOpen})
	rec = mustStep(t, &over, everonce.StepRecord{Name: "over", State: everonce.StepDone}, t0)
	equal(t, "the step over the limit", rec.Steps[everonce.MaxSteps].State, everonce.StepDone)
	_, err = transition.SaveStep(rec, stepWrite(rec, everonce.StepRecord{Name: "more", State: everonce.StepOpen}), t0)
	isErr(t, "another one", err, everonce.ErrTooLarge)
}

func TestSaveStepLeavesTheRecordAlone(t *testing.T) {
	rec := mustStep(t, claimed(t), everonce.StepRecord{Name: "mail", State: everonce.StepOpen}, t0)
	next, err := transition.SaveStep(rec, stepWrite(rec, everonce.StepRecord{Name: "mail", State: everonce.StepDone}), t0)
	isErr(t, "SaveStep", err, nil)
	equal(t, "the record's step", rec.Steps[0].State, everonce.StepOpen)
	equal(t, "the next one's step", next.Steps[0].State, everonce.StepDone)
}
