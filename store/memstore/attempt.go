package memstore

import (
	"context"
	"time"

	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/driver/transition"
)

// Claim implements [driver.Store].
func (s *Store) Claim(ctx context.Context, req driver.ClaimRequest) (res driver.ClaimResult, err error) {
	err = s.update(ctx, req.ID, func(rec *driver.Record, now time.Time) (next *driver.Record, err error) {
		next, res, err = transition.Claim(rec, req, now)
		return next, err
	})
	if err != nil {
		return driver.ClaimResult{}, err
	}
	return res, nil
}

// Complete implements [driver.Store].
func (s *Store) Complete(ctx context.Context, req driver.CompleteRequest) (res driver.CompleteResult, err error) {
	return res, s.update(ctx, req.ID, func(rec *driver.Record, now time.Time) (*driver.Record, error) {
		return transition.Complete(rec, req, now)
	})
}

// Release implements [driver.Store].
func (s *Store) Release(ctx context.Context, req driver.ReleaseRequest) (res driver.ReleaseResult, err error) {
	err = s.update(ctx, req.ID, func(rec *driver.Record, now time.Time) (next *driver.Record, err error) {
		next, res, err = transition.Release(rec, req, now)
		return next, err
	})
	return res, err
}

// Renew implements [driver.Store].
func (s *Store) Renew(ctx context.Context, req driver.RenewRequest) (res driver.RenewResult, err error) {
	return res, s.update(ctx, req.ID, func(rec *driver.Record, now time.Time) (*driver.Record, error) {
		return transition.Renew(rec, req, now)
	})
}

// SaveStep implements [driver.Store].
func (s *Store) SaveStep(ctx context.Context, req driver.SaveStepRequest) (res driver.SaveStepResult, err error) {
	return res, s.update(ctx, req.ID, func(rec *driver.Record, now time.Time) (*driver.Record, error) {
		return transition.SaveStep(rec, req, now)
	})
}

// Get implements [driver.Store].
func (s *Store) Get(ctx context.Context, req driver.GetRequest) (res driver.GetResult, err error) {
	if err := ended(ctx); err != nil {
		return res, err
	}
	rec := s.read(req.ID)
	res.Now = s.now()
	if rec != nil && !rec.GoneAt(res.Now) {
		res.Found, res.Record = true, *rec
	}
	return res, nil
}

// Recall implements [driver.Recaller].
func (s *Store) Recall(_ context.Context, req driver.RecallRequest) (res driver.RecallResult, err error) {
	rec, now := s.read(req.ID), s.now()
	if rec == nil || rec.StateAt(now) != driver.StateCompleted {
		return res, nil
	}
	return driver.RecallResult{
		Found: true, Fingerprint: rec.Fingerprint, Result: rec.Result, Owner: rec.Owner, CompletedAt: rec.CompletedAt, Now: now,
	}, nil
}
