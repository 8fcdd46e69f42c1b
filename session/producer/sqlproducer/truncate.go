package sqlproducer

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/internal/sqldb"
	"github.com/everonce/everonce/session/producer"
)

// What one transaction of [Store.Truncate], [Store.Expire] and [Store.Purge] removes.
const (
	cutBatch   = 100
	purgeBatch = 100
)

// Truncate removes batches of a stream whose records are all below a position, the oldest first and at most limit of them, in
// transactions of 100, and returns how many. What is known of producers stays: a batch that comes again is a duplicate as before. Any
// number of processes may call it at once. The error wraps [producer.ErrNoStream], [everonce.ErrInvalidArgument] for a negative
// argument, or [everonce.ErrStore].
func (s *Store[Tx]) Truncate(ctx context.Context, stream string, before int64, limit int) (removed int, err error) {
	return s.truncate(ctx, stream, s.st.below, before, limit)
}

// Expire is [Store.Truncate] for batches that were appended longer ago than age, by the store's clock.
func (s *Store[Tx]) Expire(ctx context.Context, stream string, age time.Duration, limit int) (removed int, err error) {
	if age < 0 {
		return 0, fmt.Errorf("sqlproducer: %w: the age is negative", everonce.ErrInvalidArgument)
	}
	return s.truncate(ctx, stream, s.st.older, age.Microseconds(), limit)
}

func (s *Store[Tx]) truncate(ctx context.Context, stream string, st *sqldb.Statement, arg int64, limit int) (removed int, err error) {
	if arg < 0 || limit < 0 {
		return 0, fmt.Errorf("sqlproducer: %w: the position or the limit is negative", everonce.ErrInvalidArgument)
	}
	for n := cutBatch; n == cutBatch && removed < limit; removed += n {
		batch := min(cutBatch, limit-removed)
		err := s.inTx(ctx, "truncate", func(ctx context.Context, conn sqldb.Conn) (err error) {
			n, err = s.cut(ctx, conn, stream, s.dialect.Call(st, stream, arg, int64(batch)))
			return err
		})
		if errors.Is(err, errRefused) {
			err = fmt.Errorf("sqlproducer: %w", producer.ErrNoStream)
		}
		if err != nil {
			return removed, err
		}
	}
	return removed, nil
}

// cut removes what a call finds. It locks the stream first, as an append does.
func (s *Store[Tx]) cut(ctx context.Context, conn sqldb.Conn, stream string, find *sqldb.Call) (int, error) {
	call := s.dialect.Call
	var first, next, last, at int64
	lock := into(call(s.st.lockStream, stream), &first, &next)
	if err := conn.Send(ctx, lock); err != nil {
		return 0, err
	}
	if lock.Affected == 0 {
		return 0, errRefused
	}
	if err := conn.Send(ctx, into(find, &last, &at)); err != nil || find.Affected == 0 {
		return 0, err
	}
	return int(find.Affected), conn.Send(ctx, call(s.st.cut, stream, last), call(s.st.first, stream, last+1))
}

// Purge forgets producers that have neither been granted an epoch nor appended anything for the time of idle, by the store's clock and
// within 67 s; at most limit of them, in transactions of 100. It returns how many. What they send afterwards is
// [producer.ErrForgotten], so idle must be longer than producers send anything again. Their records stay. Any number of processes may
// call it at once. The error wraps [everonce.ErrInvalidArgument] for an idle that is not positive or a negative limit, or
// [everonce.ErrStore].
func (s *Store[Tx]) Purge(ctx context.Context, idle time.Duration, limit int) (removed int, err error) {
	if idle <= 0 || limit < 0 {
		return 0, fmt.Errorf("sqlproducer: %w: idle is not positive, or the limit is negative", everonce.ErrInvalidArgument)
	}
	for n := purgeBatch; n == purgeBatch && removed < limit; removed += n {
		batch := min(purgeBatch, limit-removed)
		err := s.inTx(ctx, "purge", func(ctx context.Context, conn sqldb.Conn) error {
			var ids []int64
			find := s.dialect.Call(s.st.idle, idle.Microseconds()+1<<eraBits, int64(batch)).ForEach(func(r sqldb.Row) error {
				var id int64
				err := r.Scan(&id)
				ids = append(ids, id)
				return err
			})
			if err := conn.Send(ctx, find); err != nil {
				return err
			}
			if n = len(ids); n == 0 {
				return nil
			}
			return s.remove(ctx, conn, ids...)
		})
		if err != nil {
			return removed, err
		}
	}
	return removed, nil
}
