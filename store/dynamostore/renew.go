package dynamostore

import (
	"context"
	"time"

	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/driver/transition"
)

// Renew implements [driver.Store]: one call.
func (s *Store) Renew(ctx context.Context, req driver.RenewRequest) (res driver.RenewResult, err error) {
	req.Lease += s.skew
	now := s.now()
	w := write{put: attributes{ // when it goes counts only where the record says that it does
		attrUpdated: number(micros(now)), attrLease: number(micros(now.Add(req.Lease))), attrPurge: number(micros(now.Add(req.Lifetime.Total()))),
	}}
	return res, wrapError("renew", s.update(ctx, &req.ID, req.Token, req.Nonce, &w, func(rec *driver.Record, now time.Time) (*driver.Record, error) {
		return transition.Renew(rec, req, now)
	}))
}

// SaveStep implements [driver.Store]: two calls.
func (s *Store) SaveStep(ctx context.Context, req driver.SaveStepRequest) (res driver.SaveStepResult, err error) {
	if req.Lease > 0 {
		req.Lease += s.skew
	}
	seen, err := s.get(ctx, &req.ID)
	if err == nil {
		err = s.change(ctx, seen, func(rec *driver.Record, now time.Time) (*driver.Record, error) { return saveStep(rec, req, now) })
	}
	return res, wrapError("save step", err)
}

// saveStep is [transition.SaveStep] that leaves room in the item for what comes after: a renewal, more steps, a
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
