package sqlstore

import (
	"context"

	"github.com/everonce/everonce/internal/sqldb"

	"github.com/everonce/everonce/driver"
)

// defaultPurgeLimit is the batch of a purge that names none.
const defaultPurgeLimit = 1000

// place is a place in the order in which records are due: the place of the record with this address, or behind all that
// were due by then.
type place struct {
	due int64
	row any // text, or nil
}

// Purge removes expired results and records: see [driver.Store].
//
// If the previous purge left more, Purge continues after its last record. So a database that keeps deleted rows, for a
// transaction that may still read them, does not scan all of them in every batch, and records that a purge must keep,
// because they are damaged or a newer version's, are passed once in a round, however many there are.
func (s *Store[Tx]) Purge(ctx context.Context, req driver.PurgeRequest) (driver.PurgeResult, error) {
	var res driver.PurgeResult // read only if the write returns nil
	var reached place
	limit := int64(req.Limit)
	if limit <= 0 {
		limit = defaultPurgeLimit
	}
	var from place
	if p := s.purged.Load(); p != nil {
		from = *p
	}
	err := s.write(ctx, "purge", func(ctx context.Context, c sqldb.Conn) (err error) {
		res, reached = driver.PurgeResult{}, from
		left, err := s.purgeFrom(ctx, c, &reached, limit, &res)
		if err == nil && left > 0 {
			reached = from
			res.More, err = s.passOver(ctx, c, &reached, left)
		}
		if err != nil || res.More || from == (place{}) {
			return err
		}
		reached = place{} // records that others had locked remain
		_, err = s.purgeFrom(ctx, c, &reached, left, &res)
		return err
	})
	if err != nil {
		return driver.PurgeResult{}, err
	}
	if !res.More {
		reached = place{}
	}
	s.purged.Store(&reached)
	return res, nil
}

// purgeFrom purges the next due records, up to limit, and returns how many of them may be left. It moves from to the
// time at which the last removed record was due, if the database returns it.
func (s *Store[Tx]) purgeFrom(ctx context.Context, c sqldb.Conn, from *place, limit int64, res *driver.PurgeResult) (left int64, err error) {
	if s.text.ChooseGone != nil {
		return s.purgeEach(ctx, c, from, limit, res)
	}
	reached := *from
	due := func(r sqldb.Row) error {
		var at int64
		err := r.Scan(&at)
		if at--; at > reached.due { // there may be others that are due at the same time
			reached = place{due: at}
		}
		return err
	}
	now := s.now(nil) // one time for the steps and the results of the same records
	records := s.call(s.text.PurgeRecords, limit, from.due, from.row).ForEach(due)
	if err = c.Send(ctx, records); err != nil {
		return 0, err
	}
	res.Records += int(records.Affected)
	if left = limit - records.Affected; left > 0 {
		args := append([]any{left, from.due, from.row}, now...)
		results := (&sqldb.Call{Statement: s.text.PurgeResults, Args: args}).ForEach(due)
		calls := []*sqldb.Call{results}
		if s.text.PurgeSteps != nil {
			calls = []*sqldb.Call{{Statement: s.text.PurgeSteps, Args: args}, results}
		}
		if err = c.Send(ctx, calls...); err != nil {
			return 0, err
		}
		res.Results += int(results.Affected)
		left -= results.Affected
	}
	res.More, *from = left <= 0, reached
	return left, nil
}

// oneByOne has a statement change each of the records that are chosen, in one transaction, and returns how many it has
// changed.
func (s *Store[Tx]) oneByOne(ctx context.Context, c sqldb.Conn, choose *sqldb.Call, change *sqldb.Statement) (n int64, err error) {
	var calls []*sqldb.Call
	err = c.Send(ctx, choose.ForEach(func(r sqldb.Row) error {
		var id []byte
		var steps int64
		err := r.Scan(&id, &steps)
		calls = append(calls, &sqldb.Call{Statement: change, Args: []any{id}})
		if steps > 0 && change == s.text.PurgeResults {
			calls = append(calls, &sqldb.Call{Statement: s.text.DropOrphans, Args: []any{id}})
		}
		return err
	}))
	if err != nil || len(calls) == 0 {
		return 0, err
	}
	if err = c.Send(ctx, calls...); err != nil {
		return 0, err
	}
	for _, call := range calls {
		if call.Statement == change {
			n += call.Affected
		}
	}
	return n, nil
}

// purgeEach is purgeFrom where records are changed one by one.
func (s *Store[Tx]) purgeEach(ctx context.Context, c sqldb.Conn, from *place, limit int64, res *driver.PurgeResult) (left int64, err error) {
	records, err := s.oneByOne(ctx, c, s.call(s.text.ChooseGone, limit, from.due, from.row), s.text.PurgeRecords)
	if err != nil {
		return 0, err
	}
	res.Records += int(records)
	if left = limit - records; left > 0 {
		results, err := s.oneByOne(ctx, c, s.call(s.text.ChooseOver, left, from.due, from.row), s.text.PurgeResults)
		if err != nil {
			return 0, err
		}
		res.Results += int(results)
		left -= results
	}
	res.More = left <= 0
	return left, nil
}

// passOver moves from behind the n records that were looked at and kept, if there are so many: then others may follow.
func (s *Store[Tx]) passOver(ctx context.Context, c sqldb.Conn, from *place, n int64) (more bool, err error) {
	next := *from
	passed := s.call(s.text.PurgePassed, n-1, from.due, from.row).ForEach(func(r sqldb.Row) error {
		var row string
		err := r.Scan(&next.due, &row)
		next.row, more = row, true
		return err
	})
	err = c.Send(ctx, passed)
	*from = next
	return more, err
}
