package redisstore

import (
	"context"
	"fmt"

	"github.com/redis/rueidis"

	"github.com/everonce/everonce/driver"
)

// Store keeps records in Redis. It implements [driver.Store], [driver.Lister], [driver.ScopeDeleter],
// [driver.HealthChecker], [driver.WriteChecker], [driver.IdentityKeeper], [driver.IdentityReader] and
// [driver.ChangeWaiter]. It is safe for concurrent use.
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

// New returns a store that uses the server or cluster of client. The caller keeps the client and closes it. New checks
// the server's durability settings: it returns [ErrRisk] for a server that may lose records, unless the options accept
// that. See [Store.Check]. Other errors are [driver.ErrInvalidArgument], and the errors of a server that cannot be
// reached.
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
	if _, err := s.estimate(ctx); err != nil {
		return nil, wrapError("check", err)
	}
	return s, nil
}
