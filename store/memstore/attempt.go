package memstore

import (
	"context"
	"fmt"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/store/transition"
)

// Claim implements [everonce.Store].
func (s *Store) Claim(ctx context.Context, req everonce.ClaimRequest) (res everonce.ClaimResult, err error) {
	if err := ended(ctx); err != nil {
		return res, err
	}
	now := s.now()
	sh := s.shard(&req.ID)
	sh.mu.Lock()
	rec, exists := sh.records[req.ID]
	if !exists {
		if req.Take >= everonce.TakeToSettle { // never inserts
			sh.mu.Unlock()
			return everonce.ClaimResult{Decision: everonce.DecideAbsent, Now: now}, nil
		}
		if rec, exists, err = s.add(sh, req.ID, now); err != nil {
			sh.mu.Unlock()
			return res, err
		}
	}
	changed, err := transition.ClaimInPlace(rec, exists, &req, now, &res)
	if changed {
		sh.schedule(rec)
	}
	sh.mu.Unlock()
	return res, err
}

// Complete implements [everonce.Store].
func (s *Store) Complete(ctx context.Context, req everonce.CompleteRequest) (res everonce.CompleteResult, err error) {
	return res, s.update(ctx, &req.ID, func(rec *everonce.Record) (bool, error) {
		return transition.CompleteInPlace(rec, &req, s.now())
	})
}

// Renew implements [everonce.Store].
func (s *Store) Renew(ctx context.Context, req everonce.RenewRequest) (res everonce.RenewResult, err error) {
	return res, s.update(ctx, &req.ID, func(rec *everonce.Record) (bool, error) {
		return transition.RenewInPlace(rec, &req, s.now())
	})
}

// SaveStep implements [everonce.Store].
func (s *Store) SaveStep(ctx context.Context, req everonce.SaveStepRequest) (res everonce.SaveStepResult, err error) {
	return res, s.update(ctx, &req.ID, func(rec *everonce.Record) (bool, error) {
		return transition.SaveStepInPlace(rec, &req, s.now())
	})
}

// update changes the record that an attempt holds, under its shard's lock.
func (s *Store) update(ctx context.Context, id *everonce.RecordID, change func(*everonce.Record) (bool, error)) error {
	if err := ended(ctx); err != nil {
		return err
	}
	sh := s.shard(id)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	rec, exists := sh.records[*id]
	if !exists {
		return fmt.Errorf("memstore: %w", everonce.ErrLeaseLost)
	}
	changed, err := change(rec)
	if err != nil {
		return fmt.Errorf("memstore: %w", err)
	}
	if changed {
		sh.schedule(rec)
	}
	return nil
}

// Release implements [everonce.Store].
func (s *Store) Release(ctx context.Context, req everonce.ReleaseRequest) (res everonce.ReleaseResult, err error) {
	if err := ended(ctx); err != nil {
		return res, err
	}
	now := s.now()
	sh := s.shard(&req.ID)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	rec, exists := sh.records[req.ID]
	if !exists {
		if req.Token != 0 { // its own record is gone: nothing to end
			return everonce.ReleaseResult{Superseded: true}, nil
		}
		if rec, exists, err = s.add(sh, req.ID, now); err != nil {
			return res, err
		}
	}
	changed, res := transition.ReleaseInPlace(rec, exists, &req, now)
	if changed {
		sh.schedule(rec)
	}
	return res, nil
}

// Get implements [everonce.Store].
func (s *Store) Get(ctx context.Context, req everonce.GetRequest) (res everonce.GetResult, err error) {
	if err := ended(ctx); err != nil {
		return res, err
	}
	res.Now = s.now()
	sh := s.shard(&req.ID)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if rec, exists := sh.records[req.ID]; exists && !rec.GoneAt(res.Now) {
		res.Found, res.Record = true, *rec
	}
	return res, nil
}
