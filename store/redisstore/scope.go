package redisstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/everonce/everonce/driver"
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

// DeleteScope implements [driver.ScopeDeleter]. It scans the keys of the server, as List does, until it has found Limit
// records; a Limit of 0 is 1000. It may miss a record while a cluster moves its slot to another node. It keeps records
// that cannot be read or have a newer version, and reports those that may belong to the scope.
func (s *Store) DeleteScope(ctx context.Context, req driver.DeleteScopeRequest) (res driver.DeleteScopeResult, err error) {
	if err := req.Scope.Validate(); err != nil {
		return res, wrapError("delete scope", err)
	}
	limit := req.Limit
	if limit <= 0 {
		limit = defaultBatch
	}
	var left scopeLeft
	tried := make(map[driver.RecordID]struct{}) // most of them are gone; those that stay are passed over
	for {
		var found []driver.RecordID
		want := limit - res.Records
		err := s.scan(ctx, s.pattern(req.Scope, driver.KeyHash{}), func(ids []driver.RecordID) (bool, error) {
			for _, id := range ids {
				if _, known := tried[id]; !known && len(found) < want {
					tried[id] = struct{}{}
					found = append(found, id)
				}
			}
			return len(found) < want, nil
		})
		if err != nil {
			return res, wrapError("delete scope", err)
		}
		for ids := range slices.Chunk(found, deleters) { // behind the scan: a write may need a separate connection
			deleted, err := s.delete(ctx, req.Scope, ids, &left)
			res.Records += deleted
			if err != nil {
				return res, wrapError("delete scope", err)
			}
		}
		switch {
		case res.Records == limit:
			res.More = true
			return res, nil
		case len(found) < want: // all keys were looked at
			res.Live = left.live
			return res, wrapError("delete scope", errors.Join(left.newer, left.unread))
		}
	}
}

// scopeLeft is what is left of a scope: live claims, and the reasons why other records are left.
type scopeLeft struct {
	live          bool
	newer, unread error
}

// delete removes records of the scope that have no live claim: the script decides for each.
func (s *Store) delete(ctx context.Context, scope driver.Scope, ids []driver.RecordID, left *scopeLeft) (n int, err error) {
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
			left.unread = fmt.Errorf("%w: %w", driver.ErrCorruptRecord, errs[i])
		case errors.Is(errs[i], driver.ErrCorruptRecord):
			left.unread = errs[i]
		case errs[i] != nil:
			err = errs[i]
		case word == wordDeleted:
			n++
		case word == wordLive:
			left.live = true
		case word == wordNotOfVersion:
			left.newer = driver.ErrNewerRecord
		}
	}
	return n, err
}
