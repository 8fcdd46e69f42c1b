package transition_test

import (
	"testing"
	"time"

	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/driver/transition"
)

func TestClaimOfNewKey(t *testing.T) {
	req := claimBy(mine)
	got := mustClaim(t, nil, req, t0)
	equal(t, "record", *got, driver.Record{
		ID: req.ID, Scope: req.Scope, Name: req.Name, State: driver.StateClaimed, Token: driver.Token(t0.UnixMicro()),
		Nonce: mine, Owner: "owner-1", Attempt: 1, LeaseUntil: t0.Add(lease), Fingerprint: print1, Format: driver.FormatVersion,
		CreatedAt: t0, ClaimedAt: t0, UpdatedAt: t0,
	})
}

func TestClaimExpiresOnlyWhereAsked(t *testing.T) {
	req := claimBy(mine)
	req.ExpireUnsettled = true
	got := mustClaim(t, nil, req, t0)
	equal(t, "PurgeAt", got.PurgeAt, t0.Add(life.Total()))

	// A later attempt of a policy that does not expire takes the date away.
	rel := mustRelease(t, got, releasing(got, driver.StateReleased), t0)
	again := mustClaim(t, rel, claimBy(other), t0)
	equal(t, "PurgeAt of the second claim", again.PurgeAt, time.Time{})
}

func TestClaimRepeatedByItsNonce(t *testing.T) {
	first := claimed(t)
	for _, after := range []time.Duration{time.Second, 2 * lease} {
		again := mustClaim(t, first, claimBy(mine), t0.Add(after))
		want := *first
		want.UpdatedAt, want.LeaseUntil = t0.Add(after), t0.Add(after).Add(lease)
		equal(t, "the repeated claim", *again, want)
	}
}

func TestClaimRepeatedAfterTakeoverTellsTheSamePrevious(t *testing.T) {
	first := claimed(t)
	req := claimBy(other)
	req.Take = driver.TakeAbandoned
	taken := mustClaim(t, first, req, t0.Add(lease))
	again := mustClaim(t, taken, req, t0.Add(lease+time.Second))
	want := driver.Previous{State: driver.StateAbandoned, Owner: "owner-1", ClaimedAt: t0}
	equal(t, "Previous", taken.Previous, want)
	equal(t, "Previous of the repetition", again.Previous, want)
	equal(t, "Token of the repetition", again.Token, taken.Token)
	equal(t, "Attempt of the repetition", again.Attempt, 2)
}

func TestClaimAfterRelease(t *testing.T) {
	first := claimed(t)
	first = mustStep(t, first, driver.StepRecord{Name: "mail", State: driver.StepDone}, t0)
	rel := mustRelease(t, first, releasing(first, driver.StateReleased), t0.Add(time.Second))
	later := t0.Add(2 * time.Second)
	second := mustClaim(t, rel, claimBy(other), later)
	if second.Token <= first.Token {
		t.Errorf("the token went from %d to %d, want growth", first.Token, second.Token)
	}
	equal(t, "Attempt", second.Attempt, 2)
	equal(t, "CreatedAt", second.CreatedAt, t0)
	equal(t, "ClaimedAt", second.ClaimedAt, later)
	equal(t, "Owner", second.Owner, "owner-2")
	equal(t, "Steps", second.Steps, rel.Steps)
	equal(t, "LastError", second.LastError, "timeout")
	equal(t, "Previous", second.Previous, driver.Previous{State: driver.StateReleased, Owner: "owner-1", ClaimedAt: t0})
}

func TestTokenGrowsThoughTheClockStandsOrRunsBack(t *testing.T) {
	rec := claimed(t)
	for i, now := range []time.Time{t0, t0.Add(-time.Hour), t0} {
		rel := mustRelease(t, rec, releasing(rec, driver.StateReleased), now)
		next := mustClaim(t, rel, claimBy(driver.Nonce{byte(10 + i)}), now)
		equal(t, "Token", next.Token, rec.Token+1)
		rec = next
	}
	// Across the end of the record, too.
	rel := mustRelease(t, rec, releasing(rec, driver.StateReleased), t0)
	rel.Token += driver.Token(24 * time.Hour / time.Microsecond)
	gone := mustClaim(t, rel, claimBy(driver.Nonce{20}), t0.Add(life.Total()))
	equal(t, "Token of a new record over a gone one", gone.Token, rel.Token+1)
	equal(t, "Attempt of it", gone.Attempt, 1)
	equal(t, "Previous of it", gone.Previous, driver.Previous{})
}

func TestClaimDecisions(t *testing.T) {
	held := claimed(t)
	rel := mustRelease(t, held, releasing(held, driver.StateReleased), t0)
	aband := mustRelease(t, held, releasing(held, driver.StateAbandoned), t0)
	stepReq := releasing(held, driver.StateAbandoned)
	stepReq.Step = "mail"
	step := mustRelease(t, held, stepReq, t0)
	done := mustComplete(t, held, t0)
	newer := *held
	newer.Format = driver.FormatVersion + 1

	type take = driver.TakeOver
	for _, c := range []struct {
		name  string
		rec   *driver.Record
		nonce driver.Nonce
		take  take
		print driver.Fingerprint
		after time.Duration
		want  driver.Decision
		err   error
	}{
		{"absent to settle", nil, other, driver.TakeToSettle, print1, 0, driver.DecideAbsent, nil},
		{"gone to settle", rel, other, driver.TakeForced, print1, life.Total(), driver.DecideAbsent, nil},
		{"live", held, other, driver.TakeAbandoned, print1, lease - 1, driver.DecideInProgress, nil},
		{"live to settle", held, other, driver.TakeToSettle, print1, 0, driver.DecideInProgress, nil},
		{"live by force", held, other, driver.TakeForced, print1, 0, driver.DecideClaimed, nil},
		{"lapsed", held, other, driver.TakeNone, print1, lease, driver.DecideAbandoned, nil},
		{"lapsed, taken", held, other, driver.TakeAbandoned, print1, lease, driver.DecideClaimed, nil},
		{"abandoned", aband, other, driver.TakeNone, print1, 0, driver.DecideAbandoned, nil},
		{"abandoned, taken", aband, other, driver.TakeAbandoned, print1, 0, driver.DecideClaimed, nil},
		{"abandoned, own nonce", aband, mine, driver.TakeAbandoned, print1, 0, driver.DecideEnded, driver.ErrAttemptEnded},
		{"step unknown", step, other, driver.TakeAbandoned, print1, 0, driver.DecideAbandoned, nil},
		{"step unknown to settle", step, other, driver.TakeToSettle, print1, 0, driver.DecideClaimed, nil},
		{"released", rel, other, driver.TakeNone, print1, 0, driver.DecideClaimed, nil},
		{"released to settle", rel, other, driver.TakeToSettle, print1, 0, driver.DecideReleased, nil},
		{"released, own nonce", rel, mine, driver.TakeNone, print1, 0, driver.DecideEnded, driver.ErrAttemptEnded},
		{"done", done, other, driver.TakeForced, print1, life.Retention - 1, driver.DecideReplay, nil},
		{"done, own nonce", done, mine, driver.TakeNone, print1, 0, driver.DecideReplay, nil},
		{"tombstone", done, other, driver.TakeNone, print1, life.Retention, driver.DecideExpired, nil},
		{"mismatch", done, other, driver.TakeForced, print2, 0, driver.DecideMismatch, nil},
		{"mismatch, own nonce", held, mine, driver.TakeNone, print2, 0, driver.DecideMismatch, nil},
		{"another alg", done, other, driver.TakeNone, print3, 0, driver.DecideReplay, nil},
		{"newer", &newer, other, driver.TakeNone, print2, 0, driver.DecideNewer, driver.ErrNewerRecord},
	} {
		t.Run(c.name, func(t *testing.T) {
			req := claimBy(c.nonce)
			req.Take, req.Fingerprint = c.take, c.print
			now := t0.Add(c.after)
			before := snapshot(c.rec)
			next, res, err := transition.Claim(c.rec, req, now)
			unchanged(t, c.rec, before)
			isErr(t, "Claim", err, c.err)
			equal(t, "Decision", res.Decision, c.want)
			equal(t, "as Decide says", res.Decision, driver.Decide(c.rec, req, now))
			equal(t, "Now", res.Now, now)
			equal(t, "written", next != nil, c.want == driver.DecideClaimed)
			if c.rec != nil && next == nil && c.want != driver.DecideAbsent {
				equal(t, "the answer's record", res.Record, *c.rec)
			}
		})
	}
}

func TestTakeoverClearsTheErrorOfAnEarlierAttempt(t *testing.T) {
	first := claimed(t)
	rel := mustRelease(t, first, releasing(first, driver.StateReleased), t0)
	second := mustClaim(t, rel, claimBy(other), t0)
	req := claimBy(driver.Nonce{3})
	req.Take = driver.TakeAbandoned
	third := mustClaim(t, second, req, t0.Add(lease))
	equal(t, "LastError after a lapse", third.LastError, "")
}

func TestClaimTakesANewFingerprintOverAndKeepsTheOldWithoutOne(t *testing.T) {
	first := claimed(t)
	rel := mustRelease(t, first, releasing(first, driver.StateReleased), t0)
	req := claimBy(other)
	req.Fingerprint = print3
	equal(t, "another Alg", mustClaim(t, rel, req, t0).Fingerprint, print3)
	req.Fingerprint = driver.Fingerprint{}
	equal(t, "none", mustClaim(t, rel, req, t0).Fingerprint, print1)
}

func TestSettlingKeepsTheUnknownStepUntilItIsSettled(t *testing.T) {
	first := claimed(t)
	req := releasing(first, driver.StateAbandoned)
	req.Step = "mail"
	aband := mustRelease(t, first, req, t0)
	settle := claimBy(other)
	settle.Take = driver.TakeToSettle
	settling := mustClaim(t, aband, settle, t0)
	equal(t, "UnknownStep", settling.UnknownStep, "mail")
	// The settler dies: an ordinary takeover is still refused.
	take := claimBy(driver.Nonce{3})
	take.Take = driver.TakeAbandoned
	_, res, err := transition.Claim(settling, take, t0.Add(lease))
	isErr(t, "Claim", err, nil)
	equal(t, "Decision", res.Decision, driver.DecideAbandoned)
}

func TestClaimToSettleAnAbsentRecord(t *testing.T) {
	gone := mustComplete(t, claimed(t), t0)
	settle := claimBy(other)
	settle.Take = driver.TakeToSettle
	for name, rec := range map[string]*driver.Record{"none": nil, "gone": gone} {
		next, res, err := transition.Claim(rec, settle, gone.PurgeAt)
		isErr(t, name, err, nil)
		equal(t, name+": to be written", next != nil, false)
		equal(t, name+": answer", res, driver.ClaimResult{Decision: driver.DecideAbsent, Now: gone.PurgeAt})
	}
}
