package redisstore

import (
	"context"

	"github.com/everonce/everonce"
)

// Purge implements [everonce.Store]. There is nothing to do: a result ends with its retention and a record with its
// lifetime by the server's own hand, and what is unsettled under Refuse and Reconcile has no end. A store in Redis
// needs no janitor.
func (s *Store) Purge(ctx context.Context, _ everonce.PurgeRequest) (everonce.PurgeResult, error) {
	return everonce.PurgeResult{}, failed("purge", ctx.Err())
}
