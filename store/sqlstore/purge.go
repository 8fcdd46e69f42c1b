package sqlstore

import (
	"context"

	"github.com/everonce/everonce"
)

// defaultPurgeLimit is the batch of a purge that names none.
const defaultPurgeLimit = 1000

// Purge removes what is no longer kept: see [everonce.Store].
func (s *Store[Tx]) Purge(ctx context.Context, req everonce.PurgeRequest) (everonce.PurgeResult, error) {
	var res everonce.PurgeResult // read only if the write returns nil
	limit := int64(req.Limit)
	if limit <= 0 {
		limit = defaultPurgeLimit
	}
	err := s.write(ctx, "purge", func(ctx context.Context, c Conn) error {
		res = everonce.PurgeResult{}
		now := s.now(nil) // one time for the steps and the results of the same records
		records := s.call(s.text.PurgeRecords, limit)
		if err := c.Send(ctx, records); err != nil {
			return err
		}
		res.Records = int(records.Affected)
		left := limit - records.Affected
		if left <= 0 {
			res.More = true
			return nil
		}
		if s.text.PurgeSteps != nil {
			if err := c.Send(ctx, &Call{Statement: s.text.PurgeSteps, Args: append([]any{left}, now...)}); err != nil {
				return err
			}
		}
		results := &Call{Statement: s.text.PurgeResults, Args: append([]any{left}, now...)}
		if err := c.Send(ctx, results); err != nil {
			return err
		}
		res.Results = int(results.Affected)
		res.More = results.Affected == left
		return nil
	})
	if err != nil {
		return everonce.PurgeResult{}, err
	}
	return res, nil
}
