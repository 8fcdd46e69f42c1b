package redisstore

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/everonce/everonce"
)

const (
	// defaultBatch is the limit of a deletion that names none.
	defaultBatch = 1000
	// deleters is how many records are deleted at once.
	deleters = 32
)

// The words of the script that deletes.
const (
	wordDeleted      = 1
	wordLive         = 2
	wordNotOfVersion = 3
)

// DeleteScope implements [everonce.ScopeDeleter]. It scans keys of the server until it has found Limit records; a Limit of 0 is 1000. The next call
// on this Store goes on from there, and before a tenant is forgotten all keys are looked at once more, in one call. While a cluster moves slots from node to node, a
// record on its way may be missed. Records that cannot be read stay, and so do those of a newer version: they are told of as of the scope if they may be.
func (s *Store) DeleteScope(ctx context.Context, req everonce.DeleteScopeRequest) (res everonce.DeleteScopeResult, err error) {
	if err := req.Scope.Validate(); err != nil {
		return res, failed("delete scope", err)
	}
	limit := req.Limit
	if limit <= 0 {
		limit = defaultBatch
	}
	var from place
	if stopped, ok := s.stopped.LoadAndDelete(req.Scope); ok {
		from = stopped.(place)
	}
	for {
		var left scopeLeft
		at, err := s.scan(ctx, s.pattern(req.Scope, everonce.KeyHash{}), from, func(ids []everonce.RecordID) (bool, error) {
			for len(ids) > 0 && res.Records < limit {
				n := min(len(ids), deleters, limit-res.Records)
				deleted, err := s.delete(ctx, req.Scope, ids[:n], &left)
				res.Records += deleted
				if err != nil {
					return false, err
				}
				ids = ids[n:]
			}
			res.More = res.Records == limit
			return !res.More, nil
		})
		switch {
		case err != nil:
			return res, failed("delete scope", err)
		case res.More:
			s.stopped.Store(req.Scope, at)
			return res, nil
		case from == place{}:
			res.Live = left.live
			return res, failed("delete scope", errors.Join(left.newer, left.unread))
		}
		from = place{} // what came behind it meanwhile
	}
}

// scopeLeft is what stays of a scope: live claims, and why others do.
type scopeLeft struct {
	live          bool
	newer, unread error
}

// delete removes records that are of the scope and have no live claim: each decides for itself.
func (s *Store) delete(ctx context.Context, scope everonce.Scope, ids []everonce.RecordID, left *scopeLeft) (n int, err error) {
	var group sync.WaitGroup
	words, errs := make([]int64, len(ids)), make([]error, len(ids))
	for i := range ids {
		group.Go(func() {
			c := call{script: deleteScript, keys: s.keys(&ids[i])}
			msg, err := s.write(ctx, c.with(string(scope)))
			if err == nil {
				words[i], err = msg.ToInt64()
			}
			errs[i] = err
		})
	}
	group.Wait()
	for i, word := range words {
		switch {
		case unreadable(errs[i]):
			left.unread = fmt.Errorf("%w: %w", everonce.ErrCorruptRecord, errs[i])
		case errors.Is(errs[i], everonce.ErrCorruptRecord):
			left.unread = errs[i]
		case errs[i] != nil:
			err = errs[i]
		case word == wordDeleted:
			n++
		case word == wordLive:
			left.live = true
		case word == wordNotOfVersion:
			left.newer = everonce.ErrNewerRecord
		}
	}
	return n, err
}
