package memstore

import (
	"context"
	"time"

	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/driver/transition"
)

// defaultBatch is the limit of a purge or deletion that sets none.
const defaultBatch = 1000

// Purge implements [everonce.Store]. It locks one shard at a time, and only shards in which something is due. A Limit
// of 0 is 1000.
func (s *Store) Purge(ctx context.Context, req driver.PurgeRequest) (res driver.PurgeResult, err error) {
	if err := ended(ctx); err != nil {
		return res, err
	}
	if req.Limit <= 0 {
		req.Limit = defaultBatch
	}
	return s.sweep(s.now(), req.Limit), nil
}

// sweep drops results and removes records that time has let go, up to a limit. It goes on where the
// latest sweep ended, so that bounded sweeps come around to all shards.
func (s *Store) sweep(now time.Time, limit int) (res driver.PurgeResult) {
	first := s.cursor.Load()
	for i := range uint32(shardCount) {
		at := (first + i) % shardCount
		left := limit - res.Results - res.Records
		results, records := s.shards[at].sweep(now, left)
		res.Results += results
		res.Records += records
		s.count.Add(-int64(records))
		if results+records == left {
			s.cursor.Store(at)
			res.More = true // perhaps: the next call tells
			return res
		}
	}
	return res
}

func (sh *shard) sweep(now time.Time, limit int) (results, records int) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if sh.due == 0 || microsOf(now) < sh.due {
		return 0, 0
	}
	due := sh.due
	sh.due = 0
	for e := range sh.records.all() {
		if results+records == limit {
			sh.due = due // not all was looked at
			return results, records
		}
		var rec driver.Record
		e.get(&rec)
		switch transition.Purge(&rec, now) {
		case transition.Remove:
			sh.records.remove(e)
			records++
			continue
		case transition.DropResult:
			e.set(transition.Drop(&rec))
			results++
		case transition.Keep:
		}
		sh.schedule(e)
	}
	return results, records
}

// schedule moves the shard's due time forward to when this record has something to be purged.
func (sh *shard) schedule(e *entry) {
	at := e.purge
	if e.state == driver.StateClaimed && at != 0 {
		at = max(at, e.lease)
	}
	if e.state == driver.StateCompleted && (e.codec != "" || len(e.data) > 0 || e.rare != nil && len(e.rare.steps) > 0) {
		at = e.result
	}
	if at != 0 && (sh.due == 0 || at < sh.due) {
		sh.due = at
	}
}
