package redisstore

import (
	"context"
	"fmt"

	"github.com/redis/rueidis"

	"github.com/everonce/everonce/driver"
)

// Store keeps records in Redis. It is a [driver.Store], and also a [driver.Lister], [driver.ScopeDeleter],
// [driver.HealthChecker], [driver.IdentityKeeper], [driver.IdentityReader] and [driver.ChangeWaiter]. It is safe
// for concurrent use.
type Store struct {
	client rueidis.Client
	settings
	clock   clock
	watches watches
}

var (
	_ driver.Store          = (*Store)(nil)
	_ driver.Lister         = (*Store)(nil)
	_ driver.ScopeDeleter   = (*Store)(nil)
	_ driver.HealthChecker  = (*Store)(nil)
	_ driver.WriteChecker   = (*Store)(nil)
	_ driver.IdentityKeeper = (*Store)(nil)
	_ driver.IdentityReader = (*Store)(nil)
	_ driver.ChangeWaiter   = (*Store)(nil)
)

// New makes a store that uses its server, or cluster, through client, which stays the caller's to close. It asks the
// server what it does to keep what it has acknowledged. A server that may lose records is refused with [ErrRisk],
// unless Options accept that: see [Store.Check]. Other errors are [driver.ErrInvalidArgument], and those of a
// server that cannot be asked.
func New(ctx context.Context, client rueidis.Client, opts *Options) (*Store, error) {
	if client == nil {
		return nil, fmt.Errorf("redisstore: %w: the client is nil", driver.ErrInvalidArgument)
	}
	set, err := opts.settings()
	if err != nil {
		return nil, err
	}
	s := &Store{client: client, settings: *set, watches: watches{prefix: set.prefix, byKey: make(map[string]*watch)}}
	if err := s.Check(ctx); err != nil {
		return nil, err
	}
	if _, err := s.tell(ctx); err != nil {
		return nil, failed("check", err)
	}
	return s, nil
}
