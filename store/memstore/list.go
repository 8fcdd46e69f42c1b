package memstore

import (
	"bytes"
	"context"
	"slices"
	"time"

	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/driver/transition"
)

// defaultPage is the limit of a listing that sets none.
const defaultPage = 100

// List implements [driver.Lister]. It reads the whole store for every page.
func (s *Store) List(ctx context.Context, req driver.ListRequest) (res driver.ListResult, err error) {
	res.Now = s.now()
	if req.Limit <= 0 {
		req.Limit = defaultPage
	}
	wanted := func(rec *driver.Record) bool {
		return bytes.Compare(rec.ID[:], req.After[:]) > 0 && within(rec, req.Scope) && ofKey(rec, &req) && !rec.GoneAt(res.Now) &&
			(len(req.States) == 0 || slices.Contains(req.States, rec.StateAt(res.Now)))
	}
	var ids []driver.RecordID
	err = s.each(ctx, func(rec *driver.Record) {
		if wanted(rec) {
			ids = append(ids, rec.ID)
		}
	})
	if err != nil {
		return driver.ListResult{}, err
	}
	slices.SortFunc(ids, func(a, b driver.RecordID) int { return bytes.Compare(a[:], b[:]) })
	if len(ids) > req.Limit {
		ids = ids[:req.Limit]
		res.Next = ids[req.Limit-1]
	}
	for i := range ids {
		sh := s.shard(&ids[i])
		sh.mu.Lock()
		if e := sh.records.find(&ids[i]); e != nil {
			var rec driver.Record
			if e.get(&rec); wanted(&rec) { // it may have changed meanwhile
				res.Records = append(res.Records, listed(&rec, req.Steps))
			}
		}
		sh.mu.Unlock()
	}
	return res, nil
}

// listed returns a record without result, and without steps unless they were asked for.
func listed(rec *driver.Record, steps bool) driver.Record {
	out := *rec
	out.Result = driver.SavedResult{}
	if !steps {
		out.Steps = nil
	}
	return out
}

// within reports whether the record lies in the scope; no scope is all of them.
func within(rec *driver.Record, scope driver.Scope) bool {
	return scope == "" || rec.Scope.Within(scope)
}

// ofKey reports whether the record's key is one of those that are looked for.
func ofKey(rec *driver.Record, req *driver.ListRequest) bool {
	return (req.Name == "" || rec.Name == req.Name) && (req.KeyHash == (driver.KeyHash{}) || rec.ID.Hash() == req.KeyHash)
}

// each calls f with every record, under its shard's lock.
func (s *Store) each(ctx context.Context, f func(*driver.Record)) error {
	for i := range s.shards {
		if err := ended(ctx); err != nil {
			return err
		}
		sh := &s.shards[i]
		sh.mu.Lock()
		for e := range sh.records.all() {
			var rec driver.Record
			e.get(&rec)
			f(&rec)
		}
		sh.mu.Unlock()
	}
	return nil
}

// DeleteScope implements [driver.ScopeDeleter]. A Limit of 0 is 1000.
func (s *Store) DeleteScope(ctx context.Context, req driver.DeleteScopeRequest) (res driver.DeleteScopeResult, err error) {
	if err := req.Scope.Validate(); err != nil {
		return res, err
	}
	if req.Limit <= 0 {
		req.Limit = defaultBatch
	}
	for i := range s.shards {
		if err := ended(ctx); err != nil {
			return res, err
		}
		n, live, more := s.shards[i].deleteScope(req.Scope, s.now(), req.Limit-res.Records)
		s.count.Add(-int64(n))
		res.Records += n
		res.Live = res.Live || live
		if more {
			res.More, res.Live = true, false // which only the last call tells
			break
		}
	}
	return res, nil
}

func (sh *shard) deleteScope(scope driver.Scope, now time.Time, limit int) (n int, live, more bool) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	for e := range sh.records.all() {
		switch {
		case !e.scope.Within(scope):
		case e.state == driver.StateClaimed && microsOf(now) < e.lease:
			live = true
		case n == limit:
			return n, live, true
		default:
			sh.records.remove(e)
			n++
		}
	}
	return n, live, false
}

// Health implements [driver.HealthChecker]. It reads the whole store.
func (s *Store) Health(ctx context.Context) (h driver.Health, err error) {
	h.Now = s.now()
	h.Notes = []string{"Records are in the memory of this process: they are lost when it ends."}
	err = s.each(ctx, func(rec *driver.Record) { transition.Count(&h, rec) })
	return h, err
}
