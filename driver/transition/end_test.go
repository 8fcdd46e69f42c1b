package transition_test

import (
	"testing"
	"time"

	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/driver/transition"
)

func TestComplete(t *testing.T) {
	held := claimed(t)
	at := t0.Add(time.Second)
	done := mustComplete(t, held, at)
	want := *held
	want.State, want.Result = driver.StateCompleted, completion(held).Result
	want.LeaseUntil, want.UpdatedAt, want.CompletedAt = time.Time{}, at, at
	want.ResultUntil, want.PurgeAt = at.Add(life.Retention), at.Add(life.Total())
	equal(t, "record", *done, want)
}

func TestCompleteAccepted(t *testing.T) {
	held := claimed(t)
	mustComplete(t, held, t0.Add(10*lease)) // lapsed, but not taken over

	done := mustComplete(t, held, t0)
	next, err := transition.Complete(done, completion(held), t0.Add(time.Second))
	isErr(t, "repeated", err, nil)
	equal(t, "written by the repetition", next != nil, false)
}

func TestCompleteRefused(t *testing.T) {
	held := claimed(t)
	take := claimBy(other)
	take.Take = driver.TakeAbandoned
	taken := mustClaim(t, held, take, t0.Add(lease))
	otherDone := mustComplete(t, taken, t0.Add(lease))
	for _, c := range []struct {
		name string
		rec  *driver.Record
		req  driver.CompleteRequest
	}{
		{"absent", nil, completion(held)},
		{"taken over", taken, completion(held)},
		{"completed by another", otherDone, completion(held)},
		{"released", mustRelease(t, held, releasing(held, driver.StateReleased), t0), completion(held)},
		{"abandoned", mustRelease(t, held, releasing(held, driver.StateAbandoned), t0), completion(held)},
		{"another token", held, func() driver.CompleteRequest { r := completion(held); r.Token++; return r }()},
		{"another nonce", held, func() driver.CompleteRequest { r := completion(held); r.Nonce = other; return r }()},
		{"another token, done", mustComplete(t, held, t0), func() driver.CompleteRequest { r := completion(held); r.Token--; return r }()},
	} {
		t.Run(c.name, func(t *testing.T) {
			before := snapshot(c.rec)
			next, err := transition.Complete(c.rec, c.req, t0)
			isErr(t, "Complete", err, driver.ErrLeaseLost)
			equal(t, "written", next != nil, false)
			unchanged(t, c.rec, before)
		})
	}
}

func TestCompleteClearsTheUnknownStep(t *testing.T) {
	held := claimed(t)
	req := releasing(held, driver.StateAbandoned)
	req.Step = "mail"
	aband := mustRelease(t, held, req, t0)
	settle := claimBy(other)
	settle.Take = driver.TakeToSettle
	done := mustComplete(t, mustClaim(t, aband, settle, t0), t0)
	equal(t, "UnknownStep", done.UnknownStep, "")
	equal(t, "LastError", done.LastError, "timeout")
}

func TestRecord(t *testing.T) {
	req := claimBy(mine)
	got, err := transition.Record(nil, req, completion(&driver.Record{}), t0)
	isErr(t, "Record", err, nil)
	equal(t, "State", got.State, driver.StateCompleted)
	equal(t, "Attempt", got.Attempt, 1)
	equal(t, "LeaseUntil", got.LeaseUntil, time.Time{})
	equal(t, "PurgeAt", got.PurgeAt, t0.Add(life.Total()))

	held := claimed(t)
	rel := mustRelease(t, held, releasing(held, driver.StateReleased), t0)
	second, err := transition.Record(rel, claimBy(other), completion(held), t0)
	isErr(t, "Record over a released record", err, nil)
	equal(t, "Attempt over a released record", second.Attempt, 2)
	over, err := transition.Record(got, claimBy(other), completion(held), t0.Add(life.Total()))
	isErr(t, "Record over a gone record", err, nil)
	equal(t, "Attempt over a gone record", over.Attempt, 1)

	mismatch := claimBy(other)
	mismatch.Fingerprint = print2
	for _, c := range []struct {
		name string
		rec  *driver.Record
		req  driver.ClaimRequest
	}{
		{"claimed", held, claimBy(other)},
		{"lapsed is not released", mustRelease(t, held, releasing(held, driver.StateAbandoned), t0), claimBy(other)},
		{"completed", got, claimBy(other)},
		{"completed by the same nonce", got, claimBy(mine)},
		{"released, mismatch", rel, mismatch},
		{"released, nonce ended", rel, claimBy(mine)},
	} {
		t.Run(c.name, func(t *testing.T) {
			next, err := transition.Record(c.rec, c.req, completion(held), t0)
			isErr(t, "Record", err, driver.ErrConflict)
			equal(t, "written", next != nil, false)
		})
	}
}

func TestRelease(t *testing.T) {
	held := claimed(t)
	at := t0.Add(time.Second)
	for _, c := range []struct {
		name    string
		state   driver.State
		expire  bool
		purgeAt time.Time
	}{
		{"released", driver.StateReleased, false, at.Add(life.Total())},
		{"released, expiring", driver.StateReleased, true, at.Add(life.Total())},
		{"abandoned", driver.StateAbandoned, false, time.Time{}},
		{"abandoned, expiring", driver.StateAbandoned, true, at.Add(life.Total())},
	} {
		t.Run(c.name, func(t *testing.T) {
			req := releasing(held, c.state)
			req.ExpireUnsettled, req.Step = c.expire, "mail"
			got := mustRelease(t, held, req, at)
			want := *held
			want.State, want.LastError, want.UnknownStep = c.state, "timeout", "mail"
			want.LeaseUntil, want.UpdatedAt, want.PurgeAt = time.Time{}, at, c.purgeAt
			equal(t, "record", *got, want)

			next, res, err := transition.Release(got, req, at.Add(time.Second))
			isErr(t, "repeated", err, nil)
			equal(t, "written by the repetition", next != nil, false)
			equal(t, "Superseded of the repetition", res.Superseded, false)
		})
	}
}

// A claim that is taken back before it arrived is refused when it does, on a released record too.
func TestReleaseByNonceOnAReleasedRecord(t *testing.T) {
	rec := mustRelease(t, mustClaim(t, nil, claimBy(other), t0), byNonce(other), t0)
	next, res, err := transition.Release(rec, byNonce(mine), t0.Add(time.Second))
	isErr(t, "Release", err, nil)
	equal(t, "Superseded", res.Superseded, false)
	want := *rec
	want.Nonce = mine
	equal(t, "record", *next, want)
	_, _, err = transition.Claim(next, claimBy(mine), t0.Add(time.Second))
	isErr(t, "the late claim", err, driver.ErrAttemptEnded)
}

func TestReleaseSuperseded(t *testing.T) {
	held := claimed(t)
	rel := mustRelease(t, held, releasing(held, driver.StateReleased), t0)
	second := mustClaim(t, rel, claimBy(other), t0)
	for _, c := range []struct {
		name string
		rec  *driver.Record
		req  driver.ReleaseRequest
	}{
		{"another claim followed", second, releasing(held, driver.StateReleased)},
		{"completed", mustComplete(t, held, t0), releasing(held, driver.StateReleased)},
		{"no record", nil, releasing(held, driver.StateReleased)},
		{"by nonce, other's claim", second, byNonce(mine)},
		{"by nonce, completed", mustComplete(t, held, t0), byNonce(mine)},
	} {
		t.Run(c.name, func(t *testing.T) {
			before := snapshot(c.rec)
			next, res, err := transition.Release(c.rec, c.req, t0)
			isErr(t, "Release", err, nil)
			equal(t, "Superseded", res.Superseded, true)
			equal(t, "written", next != nil, false)
			unchanged(t, c.rec, before)
		})
	}
}

func TestReleaseByNonce(t *testing.T) {
	held := claimed(t)
	got := mustRelease(t, held, byNonce(mine), t0)
	equal(t, "State", got.State, driver.StateReleased)

	// Before the claim arrived: the record that is left refuses it.
	at := t0.Add(time.Second)
	left := mustRelease(t, nil, byNonce(mine), at)
	equal(t, "record", *left, driver.Record{
		ID: driver.RecordID{9}, Scope: "shop/charge", Name: "order-7", State: driver.StateReleased,
		Token: driver.Token(at.UnixMicro()), Nonce: mine, Format: driver.FormatVersion,
		CreatedAt: at, UpdatedAt: at, PurgeAt: at.Add(life.Total()),
	})
	_, _, err := transition.Claim(left, claimBy(mine), at)
	isErr(t, "the delayed claim", err, driver.ErrAttemptEnded)
	equal(t, "Attempt of the next claim", mustClaim(t, left, claimBy(other), at).Attempt, 1)

	next, res, err := transition.Release(left, byNonce(mine), at)
	isErr(t, "repeated", err, nil)
	equal(t, "repeated", []any{next != nil, res.Superseded}, []any{false, false})

	// Over a gone record of any attempt.
	over := mustRelease(t, left, byNonce(other), at.Add(life.Total()))
	equal(t, "Nonce over a gone record", over.Nonce, other)
	if over.Token <= left.Token {
		t.Errorf("the token went from %d to %d, want growth", left.Token, over.Token)
	}
}

func TestReleaseByNoncePutsATakenRecordBack(t *testing.T) {
	for _, c := range []struct {
		name string
		take driver.TakeOver
		at   time.Time
		step string
	}{
		{"taken over", driver.TakeAbandoned, t0.Add(lease), ""},
		{"to settle", driver.TakeToSettle, t0, "mail"},
		{"by force", driver.TakeForced, t0, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			rec := claimed(t)
			if c.step != "" {
				req := releasing(rec, driver.StateAbandoned)
				req.Step = c.step
				rec = mustRelease(t, rec, req, t0)
			}
			req := claimBy(other)
			req.Take = c.take
			taken := mustClaim(t, rec, req, c.at)
			back := mustRelease(t, taken, byNonce(other), c.at)
			equal(t, "State", back.State, driver.StateAbandoned)
			equal(t, "UnknownStep", back.UnknownStep, c.step)
			equal(t, "PurgeAt", back.PurgeAt, time.Time{})

			// With its token an attempt says what it knows.
			own := mustRelease(t, taken, releasing(taken, driver.StateReleased), c.at)
			equal(t, "State by token", own.State, driver.StateReleased)
		})
	}
}

// A claim that would have expired does not expire once a step of it is refused as unknown (rule 13).
func TestReleaseThatIsToBeSettledDoesNotExpire(t *testing.T) {
	held := claimed(t)
	held.PurgeAt = t0.Add(life.Total())
	next, _, err := transition.Release(held, driver.ReleaseRequest{
		ID: held.ID, Token: held.Token, Nonce: held.Nonce, State: driver.StateAbandoned, Step: "mail", Lifetime: life,
	}, t0.Add(time.Second))
	isErr(t, "Release", err, nil)
	equal(t, "PurgeAt", next.PurgeAt, time.Time{})
}
