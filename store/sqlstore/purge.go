package sqlstore

import (
	"context"

	"github.com/everonce/everonce"
)

// defaultPurgeLimit is the batch of a purge that names none.
const defaultPurgeLimit = 1000

// Purge removes what is no longer kept: see [everonce.Store].
//
// It begins at the time at which what the purge before it removed was due, if that left more: a database that keeps what
// was deleted, for a transaction that may still read it, would walk over all of it in every batch.
func (s *Store[Tx]) Purge(ctx context.Context, req everonce.PurgeRequest) (everonce.PurgeResult, error) {
	var res everonce.PurgeResult // read only if the write returns nil
	var reached int64
	limit := int64(req.Limit)
	if limit <= 0 {
		limit = defaultPurgeLimit
	}
	err := s.write(ctx, "purge", func(ctx context.Context, c Conn) error {
		res = everonce.PurgeResult{}
		from := s.purged.Load()
		for {
			var err error
			if reached, err = s.purgeFrom(ctx, c, from, limit-int64(res.Records+res.Results), &res); err != nil || res.More || from == 0 {
				return err
			}
			from = 0 // what was locked by others is still there
		}
	})
	if err != nil {
		return everonce.PurgeResult{}, err
	}
	if !res.More {
		reached = 0
	}
	s.purged.Store(reached)
	return res, nil
}

// purgeFrom removes up to limit of what is due, from a time on, and returns when the last of it was due, if the database tells.
func (s *Store[Tx]) purgeFrom(ctx context.Context, c Conn, from, limit int64, res *everonce.PurgeResult) (reached int64, err error) {
	reached = from
	due := func(r Row) error {
		var at int64
		err := r.Scan(&at)
		reached = max(reached, at)
		return err
	}
	now := s.now(nil) // one time for the steps and the results of the same records
	records := s.call(s.text.PurgeRecords, limit, from).each(due)
	if err = c.Send(ctx, records); err != nil {
		return reached, err
	}
	res.Records += int(records.Affected)
	left := limit - records.Affected
	if left <= 0 {
		res.More = true
		return reached, nil
	}
	if s.text.PurgeSteps != nil {
		if err = c.Send(ctx, &Call{Statement: s.text.PurgeSteps, Args: append([]any{left, from}, now...)}); err != nil {
			return reached, err
		}
	}
	results := (&Call{Statement: s.text.PurgeResults, Args: append([]any{left, from}, now...)}).each(due)
	if err = c.Send(ctx, results); err != nil {
		return reached, err
	}
	res.Results += int(results.Affected)
	res.More = results.Affected == left
	return reached, nil
}
