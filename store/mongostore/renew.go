package mongostore

import (
	"context"
	"time"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/store/transition"
)

// Renew implements [everonce.Store]: one call.
func (s *Store) Renew(ctx context.Context, req everonce.RenewRequest) (res everonce.RenewResult, err error) {
	req.Lease, req.Lifetime = whole(req.Lease), wholeLife(req.Lifetime)
	done, err := s.update(ctx, held(&req.ID, req.Token, req.Nonce), renewal(&req))
	if done || err != nil {
		return res, failed(ctx, "renew", err)
	}
	err = s.change(ctx, &req.ID, func(rec *everonce.Record, now time.Time) (*everonce.Record, error) {
		return transition.Renew(rec, req, now)
	})
	return res, failed(ctx, "renew", err)
}

// renewal moves the removal too, whether or not the record has one: xu says so. For the index its class may become longer by it
// without being told, and never shorter.
func renewal(req *everonce.RenewRequest) *write {
	w := &write{}
	life := ceil(req.Lifetime.Total())
	w.now("u", "pd")
	w.put("lm", ceil(req.Lease))
	w.put("pm", life)
	w.put("pk", class(life))
	w.drop("lb", "pb")
	return w
}

// SaveStep implements [everonce.Store]: two calls.
func (s *Store) SaveStep(ctx context.Context, req everonce.SaveStepRequest) (res everonce.SaveStepResult, err error) {
	if err := fits("save step", len(req.Step.Result.Data)); err != nil {
		return res, err
	}
	req.Lease, req.Lifetime = whole(req.Lease), wholeLife(req.Lifetime)
	err = s.change(ctx, &req.ID, func(rec *everonce.Record, now time.Time) (*everonce.Record, error) {
		return transition.SaveStep(rec, req, now)
	})
	return res, failed(ctx, "save step", err)
}
