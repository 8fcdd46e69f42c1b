package memstore

import (
	"context"
	"time"

	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/driver/transition"
)

// defaultBatch is the limit of a purge or deletion that sets none.
const defaultBatch = 1000

// Purge implements [driver.Store]. It locks one shard at a time, and looks only at those in which something is due.
// A Limit of 0 is 1000.
func (s *Store) Purge(ctx context.Context, req driver.PurgeRequest) (res driver.PurgeResult, err error) {
	if err := ended(ctx); err != nil {
		return res, err
	}
	if req.Limit <= 0 {
		req.Limit = defaultBatch
	}
	return s.sweep(s.now(), req.Limit), nil
}

// sweep drops results and removes records whose time is over, up to a limit.
func (s *Store) sweep(now time.Time, limit int) (res driver.PurgeResult) {
	for i := range s.shards {
		if s.sweepShard(&s.shards[i], now, limit, &res); res.More {
			break
		}
	}
	return res
}

// sweepShard is sweep of one shard. It sets res.More if it stops at the limit.
func (s *Store) sweepShard(sh *shard, now time.Time, limit int, res *driver.PurgeResult) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	due := sh.due
	if due.IsZero() || now.Before(due) {
		return
	}
	sh.due = time.Time{}
	for id, rec := range sh.records {
		action := transition.Purge(rec, now)
		if action != transition.Keep && res.Results+res.Records == limit {
			sh.due, res.More = due, true // the next call looks at all again
			return
		}
		switch action {
		case transition.Remove:
			s.remove(sh, id)
			res.Records++
			continue
		case transition.DropResult:
			rec = transition.Drop(rec)
			sh.records[id] = rec
			res.Results++
		case transition.Keep:
		}
		sh.schedule(rec)
	}
}

// schedule makes the shard due no later than the time when something of the record is to be purged.
func (sh *shard) schedule(rec *driver.Record) {
	at := rec.PurgeAt
	if rec.State == driver.StateCompleted && (rec.Result.Codec != "" || len(rec.Result.Data) > 0 || len(rec.Steps) > 0) {
		at = rec.ResultUntil
	}
	if !at.IsZero() && (sh.due.IsZero() || at.Before(sh.due)) {
		sh.due = at
	}
}
