// Package memstore keeps records in the memory of this process. They are lost when the process ends: use it for
// tests, for development, and for effects that do not outlive the process.
//
// It has no transactions, because no application data is in it. It fulfils the rest of the contract of [driver.Store].
package memstore

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/everonce/everonce/driver"
)

// DefaultMaxRecords is the default of Options.MaxRecords.
const DefaultMaxRecords = 1_000_000

// Options are the options of a store. The zero value of each field is its default.
type Options struct {
	// MaxRecords limits the number of records. A claim beyond the limit first removes records that are gone. If no
	// record is gone, it returns [driver.ErrStoreFull]; a record that still protects its key is never removed. Default
	// [DefaultMaxRecords], also for a negative value.
	MaxRecords int
	// Now is the store's clock. It is called concurrently, and its times are truncated to microseconds. Default: this
	// process's time at New, advanced by its monotonic clock, so that setting the clock does not change leases.
	Now func() time.Time
}

// Store is a [driver.Store] in memory. It is also a [driver.Lister], [driver.ScopeDeleter],
// [driver.HealthChecker], [driver.IdentityKeeper], [driver.IdentityReader] and [driver.Recaller]. It is safe for
// concurrent use.
type Store struct {
	clock  func() time.Time
	max    int64
	count  atomic.Int64
	shards [shardCount]shard

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

// New returns an empty store.
func New(o *Options) *Store {
	if o == nil {
		o = &Options{}
	}
	s := &Store{clock: o.Now, max: int64(o.MaxRecords)}
	if s.max <= 0 {
		s.max = DefaultMaxRecords
	}
	if s.clock == nil {
		start := time.Now()
		s.clock = func() time.Time { return start.Add(time.Since(start)) }
	}
	for i := range s.shards {
		s.shards[i].records = map[driver.RecordID]*driver.Record{}
	}
	return s
}

// Prompt implements [driver.Prompter]: no call of s blocks.
func (s *Store) Prompt() driver.Store { return s }

// now returns the store's time.
func (s *Store) now() time.Time { return s.clock().UTC().Truncate(time.Microsecond) }

// ended returns the error of a context that has ended.
func ended(ctx context.Context) error { return named(ctx.Err()) }

// named puts the name of this package before an error.
func named(err error) error {
	if err != nil {
		err = fmt.Errorf("memstore: %w", err)
	}
	return err
}

// ReadIdentity implements [driver.IdentityReader].
func (s *Store) ReadIdentity(ctx context.Context, _ driver.ReadIdentityRequest) (res driver.ReadIdentityResult, err error) {
	if err := ended(ctx); err != nil {
		return res, err
	}
	s.identityMu.Lock()
	defer s.identityMu.Unlock()
	if s.identity == nil {
		return res, nil
	}
	return driver.ReadIdentityResult{Bound: true, Check: *s.identity}, nil
}

// KeepIdentity implements [driver.IdentityKeeper].
func (s *Store) KeepIdentity(ctx context.Context, req driver.KeepIdentityRequest) (res driver.KeepIdentityResult, err error) {
	if err := ended(ctx); err != nil {
		return res, err
	}
	s.identityMu.Lock()
	defer s.identityMu.Unlock()
	if s.identity == nil {
		s.identity = &req.Check
	}
	if *s.identity != req.Check {
		return res, named(driver.ErrIdentity)
	}
	return res, nil
}
