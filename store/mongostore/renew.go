package mongostore

import (
	"context"
	"time"

	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/driver/transition"
)

// Renew implements [driver.Store]: one call.
func (s *Store) Renew(ctx context.Context, req driver.RenewRequest) (res driver.RenewResult, err error) {
	ctx, req.Lease, req.Lifetime = alone(ctx), whole(req.Lease), wholeLife(req.Lifetime)
	done, err := s.update(ctx, held(&req.ID, req.Token, req.Nonce), renewal(&req))
	if done || err != nil {
		return res, wrapError(ctx, "renew", err)
	}
	err = s.change(ctx, &req.ID, func(rec *driver.Record, now time.Time) (*driver.Record, error) {
		return transition.Renew(rec, req, now)
	})
	return res, wrapError(ctx, "renew", err)
}

// renewal moves the removal too, whether or not the record has one: xu says which. The write cannot see the old class
// for the index, so it may lengthen it, and never shortens it.
func renewal(req *driver.RenewRequest) *write {
	w := &write{}
	life := ceil(req.Lifetime.Total())
	w.now("u", "pd")
	w.put("lm", ceil(req.Lease))
	w.put("pm", life)
	w.put("pk", class(life))
	w.drop("lb", "pb")
	return w
}

// SaveStep implements [driver.Store]: two calls.
func (s *Store) SaveStep(ctx context.Context, req driver.SaveStepRequest) (res driver.SaveStepResult, err error) {
	ctx, req.Lease, req.Lifetime = alone(ctx), whole(req.Lease), wholeLife(req.Lifetime)
	err = s.change(ctx, &req.ID, func(rec *driver.Record, now time.Time) (*driver.Record, error) { return saveStep(rec, req, now) })
	return res, wrapError(ctx, "save step", err)
}

// saveStep is [transition.SaveStep] that leaves room in the document for what comes after: a renewal, more steps, a
// completion, the results of all of which may be elided.
func saveStep(rec *driver.Record, req driver.SaveStepRequest, now time.Time) (*driver.Record, error) {
	next, err := transition.SaveStep(rec, req, now)
	if err != nil || len(req.Step.Result.Data) == 0 {
		return next, err
	}
	size := 0
	for i := range next.Steps {
		size += len(next.Steps[i].Result.Data)
	}
	if err := fits("save step", size); err != nil {
		return nil, err
	}
	return next, nil
}
