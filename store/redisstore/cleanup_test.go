package redisstore_test

import (
	"context"

	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/store/redisstore"
)

// cleanUp forgets what an example has written.
func cleanUp(ctx context.Context, store *redisstore.Store) {
	_, _ = store.DeleteScope(ctx, driver.DeleteScopeRequest{Scope: "mail"}) //nolint:errcheck // it is left to the next run
}
