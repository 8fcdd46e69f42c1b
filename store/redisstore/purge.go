package redisstore

import (
	"context"

	"github.com/everonce/everonce/driver"
)

// Purge implements [driver.Store]. It does nothing: the server removes a result when its retention ends and a record
// when its lifetime ends, and an unsettled record under Refuse or Reconcile does not expire. A store in Redis needs
// no janitor.
func (s *Store) Purge(ctx context.Context, _ driver.PurgeRequest) (driver.PurgeResult, error) {
	return driver.PurgeResult{}, wrapError("purge", ctx.Err())
}
