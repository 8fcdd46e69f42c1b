package dynamostore

import (
	"context"
	"time"

	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/driver/transition"
)

// Claim implements [driver.Store] with one call for a new key and for a replay, and two for a further attempt.
func (s *Store) Claim(ctx context.Context, req driver.ClaimRequest) (res driver.ClaimResult, err error) {
	var seen attributes // a new key has nothing, and the condition tells whether it is one
	if req.Take >= driver.TakeToSettle {
		if seen, err = s.get(ctx, &req.ID); err != nil {
			return res, wrapError("claim", err)
		}
	}
	req.Lease += s.skew
	err = s.change(ctx, seen, func(rec *driver.Record, now time.Time) (next *driver.Record, err error) {
		next, res, err = transition.Claim(rec, req, now)
		return next, err
	})
	if err != nil {
		return driver.ClaimResult{}, wrapError("claim", err)
	}
	return res, nil
}
