package memstore

import (
	"context"
	"fmt"

	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/driver/transition"
)

// Claim implements [everonce.Store].
func (s *Store) Claim(ctx context.Context, req driver.ClaimRequest) (res driver.ClaimResult, err error) {
	if err := ended(ctx); err != nil {
		return res, err
	}
	now := s.clock()
	res.Now = now.time()
	sh := s.shard(&req.ID)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	e := sh.records.find(&req.ID)
	exists := e != nil
	if !exists {
		if req.Take >= driver.TakeToSettle { // never inserts
			res.Decision = driver.DecideAbsent
			return res, nil
		}
		if e, exists, err = s.add(sh, req.ID, res.Now); err != nil {
			return res, err
		}
		if !exists {
			e.begin(&req, now)
			sh.schedule(e)
			e.get(&res.Record)
			res.Decision = driver.DecideClaimed
			return res, nil
		}
	}
	var rec driver.Record
	e.get(&rec)
	next, res, err := transition.Claim(&rec, req, res.Now)
	sh.keep(e, next)
	return res, err
}

// Complete implements [everonce.Store].
func (s *Store) Complete(ctx context.Context, req driver.CompleteRequest) (res driver.CompleteResult, err error) {
	sh, e, err := s.held(ctx, &req.ID)
	if err != nil {
		return res, err
	}
	defer sh.mu.Unlock()
	now := s.clock()
	if e.complete(&req, now) {
		sh.schedule(e)
		return res, nil
	}
	var rec driver.Record
	e.get(&rec)
	next, err := transition.Complete(&rec, req, now.time())
	sh.keep(e, next)
	return res, named(err)
}

// Renew implements [everonce.Store].
func (s *Store) Renew(ctx context.Context, req driver.RenewRequest) (res driver.RenewResult, err error) {
	sh, e, err := s.held(ctx, &req.ID)
	if err != nil {
		return res, err
	}
	defer sh.mu.Unlock()
	var rec driver.Record
	e.get(&rec)
	next, err := transition.Renew(&rec, req, s.now())
	sh.keep(e, next)
	return res, named(err)
}

// SaveStep implements [everonce.Store].
func (s *Store) SaveStep(ctx context.Context, req driver.SaveStepRequest) (res driver.SaveStepResult, err error) {
	sh, e, err := s.held(ctx, &req.ID)
	if err != nil {
		return res, err
	}
	defer sh.mu.Unlock()
	var rec driver.Record
	e.get(&rec)
	next, err := transition.SaveStep(&rec, req, s.now())
	sh.keep(e, next)
	return res, named(err)
}

// held returns the record that an attempt should hold, with its shard locked. Without an error the caller unlocks it.
func (s *Store) held(ctx context.Context, id *driver.RecordID) (*shard, *entry, error) {
	if err := ended(ctx); err != nil {
		return nil, nil, err
	}
	sh := s.shard(id)
	sh.mu.Lock()
	e := sh.records.find(id)
	if e == nil {
		sh.mu.Unlock()
		return nil, nil, fmt.Errorf("memstore: %w", driver.ErrLeaseLost)
	}
	return sh, e, nil
}

// keep writes back what a transition made of a record, if anything.
func (sh *shard) keep(e *entry, next *driver.Record) {
	if next != nil {
		e.set(next)
		sh.schedule(e)
	}
}

// named names the store in a transition's refusal.
func named(err error) error {
	if err != nil {
		err = fmt.Errorf("memstore: %w", err)
	}
	return err
}

// Release implements [everonce.Store].
func (s *Store) Release(ctx context.Context, req driver.ReleaseRequest) (res driver.ReleaseResult, err error) {
	if err := ended(ctx); err != nil {
		return res, err
	}
	now := s.now()
	sh := s.shard(&req.ID)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	e := sh.records.find(&req.ID)
	exists := e != nil
	if !exists {
		if req.Token != 0 { // its own record is gone: nothing to end
			return driver.ReleaseResult{Superseded: true}, nil
		}
		if e, exists, err = s.add(sh, req.ID, now); err != nil {
			return res, err
		}
	}
	var rec *driver.Record
	if exists {
		rec = new(driver.Record)
		e.get(rec)
	}
	next, res, err := transition.Release(rec, req, now)
	sh.keep(e, next)
	return res, named(err)
}

// Get implements [everonce.Store].
func (s *Store) Get(ctx context.Context, req driver.GetRequest) (res driver.GetResult, err error) {
	if err := ended(ctx); err != nil {
		return res, err
	}
	res.Now = s.now()
	sh := s.shard(&req.ID)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	e := sh.records.find(&req.ID)
	if e == nil {
		return res, nil
	}
	e.get(&res.Record)
	if res.Found = !res.Record.GoneAt(res.Now); !res.Found {
		res.Record = driver.Record{}
	}
	return res, nil
}
