package main

import (
	"context"
	"errors"
	"math"
	"testing"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/driver"
)

// batches is a store with a number of records left to remove. It can fail once all are removed.
type batches struct {
	everonce.Store
	left, limit int
	fails       error
}

func (b *batches) Purge(_ context.Context, r driver.PurgeRequest) (driver.PurgeResult, error) {
	if b.left == 0 {
		return driver.PurgeResult{}, b.fails
	}
	b.left--
	b.limit = r.Limit
	return driver.PurgeResult{Results: 2, Records: 3, More: b.left > 0 || b.fails != nil}, nil
}

// It removes batches of the given size until no record is due. A failure is not reported as "all is gone".
func TestPurgeGoesOnUntilThereIsNoMore(t *testing.T) {
	t.Parallel()
	store := &batches{left: 3}
	if got, err := purge(t.Context(), store, 5, math.MaxInt); got != (purged{Results: 6, Records: 9}) || err != nil || store.left != 0 || store.limit != 5 {
		t.Errorf("%+v, %v; %d batches are left, of %d", got, err, store.left, store.limit)
	}
	store = &batches{left: 1, fails: errWork}
	if _, err := purge(t.Context(), store, 5, math.MaxInt); !errors.Is(err, errWork) {
		t.Errorf("a store that fails: %v", err)
	}
}
