// Package memstore keeps records in the memory of this process. It forgets them all at a restart, so it
// is for tests and development, and for effects that die with the process too.
//
// Otherwise it keeps the whole contract of [everonce.Store], as the suite in store/drivertest proves.
// It has no transactions, because no data of the application could commit with a record.
package memstore

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/everonce/everonce/driver"
)

// DefaultMaxRecords is how many records a store holds unless Options say otherwise.
const DefaultMaxRecords = 1_000_000

// Options are the options of a store. The zero value of each field is its default.
type Options struct {
	// MaxRecords bounds the number of records. A claim beyond it first removes what is gone by time, and if that is
	// not enough it is refused with [everonce.ErrStoreFull]; a record that still protects its key is never evicted.
	// The memory of a removed record is kept for the next ones. Default [DefaultMaxRecords], for a negative value
	// too; at most 4 billion.
	MaxRecords int
	// Now is the store's clock. It is called concurrently. Default: this process's time at New, and from there on its
	// monotonic clock, so that a clock that is set moves no lease. Times are kept in microseconds.
	Now func() time.Time
}

// Store is an [everonce.Store] in memory. It is also an [driver.Lister], [driver.ScopeDeleter],
// [driver.HealthChecker], [driver.IdentityKeeper], [driver.IdentityReader] and [driver.Recaller]. It is
// safe for concurrent use.
type Store struct {
	clock  func() micros
	max    int64
	count  atomic.Int64
	shards [shardCount]shard
	pool   pool
	// cursor is the shard where the next purge begins.
	cursor atomic.Uint32

	identityMu sync.Mutex
	identity   *[32]byte
}

var (
	_ driver.Store          = (*Store)(nil)
	_ driver.Lister         = (*Store)(nil)
	_ driver.ScopeDeleter   = (*Store)(nil)
	_ driver.HealthChecker  = (*Store)(nil)
	_ driver.IdentityKeeper = (*Store)(nil)
	_ driver.IdentityReader = (*Store)(nil)
	_ driver.Recaller       = (*Store)(nil)
)

// shardCount keeps a shard of a full store at a few thousand records, which is what a purge or a count
// looks through while it holds the shard's lock.
const shardCount = 256

type shard struct {
	mu      sync.Mutex
	records table
	// due is not after the next time at which a record of the shard has something to be purged; zero
	// where none ever has.
	due micros
	_   [40]byte // two shards do not share a cache line
}

// New returns an empty store.
func New(o *Options) *Store {
	if o == nil {
		o = &Options{}
	}
	s := &Store{max: int64(o.MaxRecords)}
	if s.max <= 0 {
		s.max = DefaultMaxRecords
	}
	s.max = min(s.max, maxNumber)
	for i := range s.shards {
		s.shards[i].records.pool = &s.pool
	}
	if now := o.Now; now != nil {
		s.clock = func() micros { return microsOf(now()) }
	} else {
		start := time.Now()
		wall := microsOf(start)
		s.clock = func() micros { return wall + micros(time.Since(start)/time.Microsecond) }
	}
	return s
}

// now is the store's time.
func (s *Store) now() time.Time { return s.clock().time() }

// shard returns the shard of an ID, by its first byte after those that stand for the scope.
func (s *Store) shard(id *driver.RecordID) *shard { return &s.shards[id[8]] }

// add puts a zero record into a shard that is locked and has none of that ID, for the caller to fill before
// unlocking. It may unlock the shard for a while to remove what is gone; if there is a record then, it
// returns that.
func (s *Store) add(sh *shard, id driver.RecordID, now time.Time) (e *entry, exists bool, err error) {
	if s.count.Add(1) > s.max {
		s.count.Add(-1)
		sh.mu.Unlock()
		s.sweep(now, int(s.max))
		sh.mu.Lock()
		if e = sh.records.find(&id); e != nil {
			return e, true, nil
		}
		if s.count.Add(1) > s.max {
			s.count.Add(-1)
			return nil, false, fmt.Errorf("memstore: %w: Options.MaxRecords is %d", driver.ErrStoreFull, s.max)
		}
	}
	return sh.records.add(&id), false, nil
}

// Prompt returns s. It declares that no call of s blocks, so that a receiver makes its calls without a timeout. It
// does not speak for a store that embeds s.
func (s *Store) Prompt() driver.Store { return s }

// ended returns the error of a context that has ended.
func ended(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("memstore: %w", err)
	}
	return nil
}

// ReadIdentity implements [driver.IdentityReader].
func (s *Store) ReadIdentity(ctx context.Context) (check [32]byte, bound bool, err error) {
	if err := ended(ctx); err != nil {
		return check, false, err
	}
	s.identityMu.Lock()
	defer s.identityMu.Unlock()
	if s.identity == nil {
		return check, false, nil
	}
	return *s.identity, true, nil
}

// KeepIdentity implements [driver.IdentityKeeper].
func (s *Store) KeepIdentity(ctx context.Context, check [32]byte) error {
	if err := ended(ctx); err != nil {
		return err
	}
	s.identityMu.Lock()
	defer s.identityMu.Unlock()
	if s.identity == nil {
		s.identity = &check
	}
	if *s.identity != check {
		return fmt.Errorf("memstore: %w", driver.ErrIdentity)
	}
	return nil
}
