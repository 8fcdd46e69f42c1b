package redisstore

import (
	"context"

	"github.com/everonce/everonce/driver"
)

// Purge implements [driver.Store]. It has nothing to do: the server itself removes a result when its retention ends
// and a record when its lifetime ends, and a record that is unsettled under Refuse or Reconcile has no end. A store
// in Redis needs no janitor.
func (s *Store) Purge(ctx context.Context, _ driver.PurgeRequest) (driver.PurgeResult, error) {
	return driver.PurgeResult{}, failed("purge", ctx.Err())
}
