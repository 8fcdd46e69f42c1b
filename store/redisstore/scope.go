package redisstore

import (
	"context"
	"errors"
	"sync"

	"github.com/everonce/everonce"
)

const (
	// defaultBatch is the limit of a deletion that names none.
	defaultBatch = 1000
	// deleters is how many records are deleted at once.
	deleters = 32
)

// DeleteScope implements [everonce.ScopeDeleter]. It scans every key of the server, as List does, until it has found
// Limit records; a Limit of 0 is 1000. Records that cannot be read stay; the call after which nothing else is
// left to delete fails because of them.
func (s *Store) DeleteScope(ctx context.Context, req everonce.DeleteScopeRequest) (res everonce.DeleteScopeResult, err error) {
	if err := req.Scope.Validate(); err != nil {
		return res, failed("delete scope", err)
	}
	limit := req.Limit
	if limit <= 0 {
		limit = defaultBatch
	}
	var unread error
	err = s.scan(ctx, req.Scope, func(ids []everonce.RecordID) (bool, error) {
		for len(ids) > 0 && res.Records < limit {
			n := min(len(ids), deleters, limit-res.Records)
			deleted, corrupt, err := s.delete(ctx, req.Scope, ids[:n])
			res.Records += deleted
			if err != nil {
				return false, err
			}
			if corrupt != nil {
				unread = corrupt
			}
			ids = ids[n:]
		}
		res.More = res.Records == limit
		return !res.More, nil
	})
	if err == nil && !res.More {
		err = unread
	}
	return res, failed("delete scope", err)
}

// delete removes records that are of the scope and have no live claim: each decides for itself. One that cannot be read
// is told apart.
func (s *Store) delete(ctx context.Context, scope everonce.Scope, ids []everonce.RecordID) (n int, unread, err error) {
	var group sync.WaitGroup
	deleted, errs := make([]int64, len(ids)), make([]error, len(ids))
	for i := range ids {
		group.Go(func() {
			c := call{script: deleteScript, keys: s.keys(&ids[i])}
			msg, err := s.write(ctx, c.with(string(scope)))
			if err == nil {
				deleted[i], err = msg.ToInt64()
			}
			errs[i] = err
		})
	}
	group.Wait()
	for i := range ids {
		n += int(deleted[i])
		if unreadable(errs[i]) || errors.Is(errs[i], everonce.ErrCorruptRecord) {
			unread, errs[i] = errs[i], nil
		}
	}
	return n, unread, errors.Join(errs...)
}
