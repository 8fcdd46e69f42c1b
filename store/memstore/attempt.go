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
	defer sh.mu.Unlock()
	e, exists := sh.records[req.ID]
	if !exists {
		if req.Take >= everonce.TakeToSettle { // never inserts
			return everonce.ClaimResult{Decision: everonce.DecideAbsent, Now: now}, nil
		}
		if e, exists, err = s.add(sh, req.ID, now); err != nil {
			return res, err
		}
	}
	if exists {
		e.get(&res.Record)
	}
	changed, err := transition.ClaimInPlace(&res.Record, exists, &req, now, &res)
	if changed {
		e.set(&res.Record)
		sh.schedule(e)
	}
	return res, err
}

// Complete implements [everonce.Store].
func (s *Store) Complete(ctx context.Context, req everonce.CompleteRequest) (res everonce.CompleteResult, err error) {
	var rec everonce.Record
	sh, e, err := s.held(ctx, &req.ID, &rec)
	if err != nil {
		return res, err
	}
	defer sh.mu.Unlock()
	changed, err := transition.CompleteInPlace(&rec, &req, s.now())
	return res, sh.keep(e, &rec, changed, err)
}

// Renew implements [everonce.Store].
func (s *Store) Renew(ctx context.Context, req everonce.RenewRequest) (res everonce.RenewResult, err error) {
	var rec everonce.Record
	sh, e, err := s.held(ctx, &req.ID, &rec)
	if err != nil {
		return res, err
	}
	defer sh.mu.Unlock()
	changed, err := transition.RenewInPlace(&rec, &req, s.now())
	return res, sh.keep(e, &rec, changed, err)
}

// SaveStep implements [everonce.Store].
func (s *Store) SaveStep(ctx context.Context, req everonce.SaveStepRequest) (res everonce.SaveStepResult, err error) {
	var rec everonce.Record
	sh, e, err := s.held(ctx, &req.ID, &rec)
	if err != nil {
		return res, err
	}
	defer sh.mu.Unlock()
	changed, err := transition.SaveStepInPlace(&rec, &req, s.now())
	return res, sh.keep(e, &rec, changed, err)
}

// held returns the record that an attempt holds, with its shard locked. Without an error the caller unlocks it.
func (s *Store) held(ctx context.Context, id *everonce.RecordID, rec *everonce.Record) (*shard, *entry, error) {
	if err := ended(ctx); err != nil {
		return nil, nil, err
	}
	sh := s.shard(id)
	sh.mu.Lock()
	e, exists := sh.records[*id]
	if !exists {
		sh.mu.Unlock()
		return nil, nil, fmt.Errorf("memstore: %w", everonce.ErrLeaseLost)
	}
	e.get(rec)
	return sh, e, nil
}

// keep writes back what a transition made of a record, or names the store in its refusal.
func (sh *shard) keep(e *entry, rec *everonce.Record, changed bool, err error) error {
	if err != nil {
		return fmt.Errorf("memstore: %w", err)
	}
	if changed {
		e.set(rec)
		sh.schedule(e)
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
	e, exists := sh.records[req.ID]
	if !exists {
		if req.Token != 0 { // its own record is gone: nothing to end
			return everonce.ReleaseResult{Superseded: true}, nil
		}
		if e, exists, err = s.add(sh, req.ID, now); err != nil {
			return res, err
		}
	}
	var rec everonce.Record
	if exists {
		e.get(&rec)
	}
	changed, res := transition.ReleaseInPlace(&rec, exists, &req, now)
	if changed {
		e.set(&rec)
		sh.schedule(e)
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
	e, exists := sh.records[req.ID]
	if !exists {
		return res, nil
	}
	e.get(&res.Record)
	if res.Found = !res.Record.GoneAt(res.Now); !res.Found {
		res.Record = everonce.Record{}
	}
	return res, nil
}
