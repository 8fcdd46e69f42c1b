package transition_test

import (
	"testing"
	"time"

	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/driver/transition"
)

func TestPurge(t *testing.T) {
	held := claimed(t)
	expiringReq := claimBy(mine)
	expiringReq.ExpireUnsettled = true
	expiring := mustClaim(t, nil, expiringReq, t0)
	longLease := expiringReq
	longLease.Lease = 2 * life.Total()
	rel := mustRelease(t, held, releasing(held, driver.StateReleased), t0)
	aband := mustRelease(t, held, releasing(held, driver.StateAbandoned), t0)
	done := mustComplete(t, mustStep(t, held, driver.StepRecord{Name: "mail", State: driver.StepDone}, t0), t0)
	bare := mustComplete(t, held, t0)
	bare.Result = driver.SavedResult{Kind: driver.ResultElided, Summary: []byte("200")}

	const ever = 1000 * time.Hour
	for _, c := range []struct {
		name  string
		rec   *driver.Record
		after time.Duration
		want  transition.Action
	}{
		{"claimed", held, ever, transition.Keep},
		{"claimed, expiring", expiring, life.Total() - 1, transition.Keep},
		{"claimed, expired", expiring, life.Total(), transition.Remove},
		{"claimed, expired, live", mustClaim(t, nil, longLease, t0), life.Total(), transition.Keep},
		{"abandoned", aband, ever, transition.Keep},
		{"released", rel, life.Total() - 1, transition.Keep},
		{"released, gone", rel, life.Total(), transition.Remove},
		{"done", done, life.Retention - 1, transition.Keep},
		{"tombstone", done, life.Retention, transition.DropResult},
		{"tombstone, dropped", transition.Drop(done), life.Total() - 1, transition.Keep},
		{"tombstone without a result", bare, life.Retention, transition.Keep},
		{"tombstone, gone", done, life.Total(), transition.Remove},
	} {
		t.Run(c.name, func(t *testing.T) {
			equal(t, "action", transition.Purge(c.rec, t0.Add(c.after)), c.want)
		})
	}
}

func TestDropKeepsKindAndSummary(t *testing.T) {
	rec := mustStep(t, claimed(t), driver.StepRecord{Name: "mail", State: driver.StepDone}, t0)
	done := mustComplete(t, rec, t0)
	before := snapshot(done)
	got := transition.Drop(done)
	unchanged(t, done, before)
	want := *done
	want.Steps = nil
	want.Result = driver.SavedResult{Kind: driver.ResultValue, Summary: []byte("200")}
	equal(t, "record", *got, want)
}
