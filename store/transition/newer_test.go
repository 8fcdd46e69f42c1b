package transition_test

import (
	"errors"
	"testing"
	"time"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/store/transition"
)

// What a newer version wrote is refused by every function, to the attempt that holds it too, until it is
// gone by time.
func TestARecordOfANewerVersionIsLeftAlone(t *testing.T) {
	for _, state := range []everonce.State{everonce.StateClaimed, everonce.StateReleased, everonce.StateCompleted} {
		rec := claimed(t)
		rec.Format, rec.State = everonce.FormatVersion+1, state
		rec.PurgeAt = t0.Add(time.Hour)
		req := claimBy(mine)
		release := everonce.ReleaseRequest{ID: rec.ID, Scope: rec.Scope, Name: rec.Name, Nonce: mine, State: everonce.StateReleased, Lifetime: life}
		byToken, byOther := release, release
		byToken.Token, byOther.Nonce = rec.Token, other
		for what, call := range map[string]func() (*everonce.Record, error){
			"Claim": func() (*everonce.Record, error) {
				next, _, err := transition.Claim(rec, req, t0)
				return next, err
			},
			"Complete": func() (*everonce.Record, error) {
				return transition.Complete(rec, everonce.CompleteRequest{ID: rec.ID, Token: rec.Token, Nonce: mine, Lifetime: life}, t0)
			},
			"Renew": func() (*everonce.Record, error) {
				return transition.Renew(rec, everonce.RenewRequest{ID: rec.ID, Token: rec.Token, Nonce: mine, Lease: lease, Lifetime: life}, t0)
			},
			"SaveStep": func() (*everonce.Record, error) {
				return transition.SaveStep(rec, everonce.SaveStepRequest{ID: rec.ID, Token: rec.Token, Nonce: mine, Step: everonce.StepRecord{Name: "mail", State: everonce.StepOpen}}, t0)
			},
			"Release by token": func() (*everonce.Record, error) {
				next, _, err := transition.Release(rec, byToken, t0)
				return next, err
			},
			"Release by nonce": func() (*everonce.Record, error) {
				next, _, err := transition.Release(rec, release, t0)
				return next, err
			},
			"Release by another nonce": func() (*everonce.Record, error) {
				next, _, err := transition.Release(rec, byOther, t0)
				return next, err
			},
		} {
			if next, err := call(); !errors.Is(err, everonce.ErrNewerRecord) || next != nil {
				t.Errorf("%s of a record that is %v: %v, %v, want ErrNewerRecord", what, state, next, err)
			}
		}
		rec.ResultUntil = t0
		rec.Result = everonce.SavedResult{Kind: everonce.ResultValue, Codec: "raw", Data: []byte("done")}
		if got := transition.Purge(rec, t0); got != transition.Keep {
			t.Errorf("a purge of one that is %v: %v, want to keep it whole", state, got)
		}
		rec.LeaseUntil = rec.PurgeAt
		if next, _, err := transition.Claim(rec, req, rec.PurgeAt); err != nil || next == nil || next.Format != everonce.FormatVersion {
			t.Errorf("a claim when it is gone: %v, %v", next, err)
		}
	}
}
