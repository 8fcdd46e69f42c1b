package transition_test

import (
	"errors"
	"testing"
	"time"

	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/driver/transition"
)

// Every function refuses a record of a newer version, to the attempt that holds it too, until the record is gone.
func TestARecordOfANewerVersionIsLeftAlone(t *testing.T) {
	for _, state := range []driver.State{driver.StateClaimed, driver.StateReleased, driver.StateCompleted} {
		rec := claimed(t)
		rec.Format, rec.State = driver.FormatVersion+1, state
		rec.PurgeAt = t0.Add(time.Hour)
		req := claimBy(mine)
		release := driver.ReleaseRequest{ID: rec.ID, Scope: rec.Scope, Name: rec.Name, Nonce: mine, State: driver.StateReleased, Lifetime: life}
		byToken, byOther := release, release
		byToken.Token, byOther.Nonce = rec.Token, other
		for what, call := range map[string]func() (*driver.Record, error){
			"Claim": func() (*driver.Record, error) {
				next, _, err := transition.Claim(rec, req, t0)
				return next, err
			},
			"Complete": func() (*driver.Record, error) {
				return transition.Complete(rec, driver.CompleteRequest{ID: rec.ID, Token: rec.Token, Nonce: mine, Lifetime: life}, t0)
			},
			"Renew": func() (*driver.Record, error) {
				return transition.Renew(rec, driver.RenewRequest{ID: rec.ID, Token: rec.Token, Nonce: mine, Lease: lease, Lifetime: life}, t0)
			},
			"SaveStep": func() (*driver.Record, error) {
				return transition.SaveStep(rec, driver.SaveStepRequest{ID: rec.ID, Token: rec.Token, Nonce: mine, Step: driver.StepRecord{Name: "mail", State: driver.StepOpen}}, t0)
			},
			"Release by token": func() (*driver.Record, error) {
				next, _, err := transition.Release(rec, byToken, t0)
				return next, err
			},
			"Release by nonce": func() (*driver.Record, error) {
				next, _, err := transition.Release(rec, release, t0)
				return next, err
			},
			"Release by another nonce": func() (*driver.Record, error) {
				next, _, err := transition.Release(rec, byOther, t0)
				return next, err
			},
		} {
			if next, err := call(); !errors.Is(err, driver.ErrNewerRecord) || next != nil {
				t.Errorf("%s of a record that is %v: %v, %v, want ErrNewerRecord", what, state, next, err)
			}
		}
		rec.ResultUntil = t0
		rec.Result = driver.SavedResult{Kind: driver.ResultValue, Codec: "raw", Data: []byte("done")}
		if got := transition.Purge(rec, t0); got != transition.Keep {
			t.Errorf("a purge of one that is %v: %v, want to keep it whole", state, got)
		}
		rec.LeaseUntil = rec.PurgeAt
		if next, _, err := transition.Claim(rec, req, rec.PurgeAt); err != nil || next == nil || next.Format != driver.FormatVersion {
			t.Errorf("a claim when it is gone: %v, %v", next, err)
		}
	}
}
