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
	var found []*driver.Record
	err = s.each(ctx, func(rec *driver.Record) {
		if bytes.Compare(rec.ID[:], req.After[:]) > 0 && selected(rec, &req, res.Now) {
			found = append(found, rec)
		}
	})
	if err != nil {
		return driver.ListResult{}, err
	}
	slices.SortFunc(found, func(a, b *driver.Record) int { return bytes.Compare(a.ID[:], b.ID[:]) })
	if len(found) > req.Limit {
		found = found[:req.Limit]
		res.Next = found[req.Limit-1].ID
	}
	for _, rec := range found {
		out := *rec
		out.Result = driver.SavedResult{}
		if !req.Steps {
			out.Steps = nil
		}
		res.Records = append(res.Records, out)
	}
	return res, nil
}

// selected reports whether a listing asks for the record.
func selected(rec *driver.Record, req *driver.ListRequest, now time.Time) bool {
	return (req.Scope == "" || rec.Scope.Within(req.Scope)) &&
		(req.Name == "" || rec.Name == req.Name) &&
		(req.KeyHash == driver.KeyHash{} || rec.ID.Hash() == req.KeyHash) &&
		!rec.GoneAt(now) &&
		(len(req.States) == 0 || slices.Contains(req.States, rec.StateAt(now)))
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
		if s.deleteScope(&s.shards[i], req, &res); res.More {
			break
		}
	}
	return res, nil
}

// deleteScope is DeleteScope in one shard. It sets res.More if it stops at the limit.
func (s *Store) deleteScope(sh *shard, req driver.DeleteScopeRequest, res *driver.DeleteScopeResult) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	now := s.now()
	for id, rec := range sh.records {
		switch {
		case !rec.Scope.Within(req.Scope):
		case rec.StateAt(now) == driver.StateClaimed:
			res.Live = true
		case res.Records == req.Limit:
			res.More = true
			return
		default:
			s.remove(sh, id)
			res.Records++
		}
	}
}

// Health implements [driver.HealthChecker]. It reads the whole store.
func (s *Store) Health(ctx context.Context, _ driver.HealthRequest) (h driver.HealthResult, err error) {
	h.Now = s.now()
	h.Notes = []string{"Records are in the memory of this process: they are lost when it ends."}
	err = s.each(ctx, func(rec *driver.Record) { transition.Count(&h, rec) })
	return h, err
}
