package memstore

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/everonce/everonce/driver"
)

// shardCount keeps a shard of a full store at a few thousand records. A purge or a count holds one shard's lock for as
// long as it takes to look at those.
const shardCount = 256

// shard holds a part of the records. A record in it is replaced, never changed, so it may be read without the lock.
type shard struct {
	mu      sync.Mutex
	records map[driver.RecordID]*driver.Record
	due     time.Time // nothing is to be purged before it; zero if nothing ever is
}

// shard returns the shard of an ID, by the first byte of the key's hash.
func (s *Store) shard(id driver.RecordID) *shard { return &s.shards[id[8]] }

// read returns the record of an ID, or nil.
func (s *Store) read(id driver.RecordID) *driver.Record {
	sh := s.shard(id)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	return sh.records[id]
}

// update replaces the record of an ID with what transit makes of it, unless that is nil. transit may be called twice.
func (s *Store) update(ctx context.Context, id driver.RecordID, transit func(*driver.Record, time.Time) (*driver.Record, error)) error {
	if err := ended(ctx); err != nil {
		return err
	}
	full, err := s.try(id, transit)
	if full {
		s.sweep(s.now(), int(s.max))
		full, err = s.try(id, transit)
	}
	if full {
		err = fmt.Errorf("%w: Options.MaxRecords is %d", driver.ErrStoreFull, s.max)
	}
	return named(err)
}

// try does what update does, unless the store is full and would need room for a record.
func (s *Store) try(id driver.RecordID, transit func(*driver.Record, time.Time) (*driver.Record, error)) (full bool, err error) {
	sh := s.shard(id)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	rec := sh.records[id]
	next, err := transit(rec, s.now())
	if next == nil {
		return false, err
	}
	if rec == nil && s.count.Add(1) > s.max {
		s.count.Add(-1)
		return true, nil
	}
	sh.records[id] = next
	sh.schedule(next)
	return false, err
}

// remove removes an existing record.
func (s *Store) remove(sh *shard, id driver.RecordID) {
	delete(sh.records, id)
	s.count.Add(-1)
}

// each calls f with every record, without a lock.
func (s *Store) each(ctx context.Context, f func(*driver.Record)) error {
	var records []*driver.Record
	for i := range s.shards {
		if err := ended(ctx); err != nil {
			return err
		}
		sh := &s.shards[i]
		sh.mu.Lock()
		records = records[:0]
		for _, rec := range sh.records {
			records = append(records, rec)
		}
		sh.mu.Unlock()
		for _, rec := range records {
			f(rec)
		}
	}
	return nil
}
