package sqlproducer

import (
	"context"
	"fmt"
	"time"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/internal/sqldb"
)

// Limits of one transaction of [Store.Truncate], [Store.Expire] and [Store.Purge].
const (
	cutBatch   = 100
	purgeBatch = 100
	// purgeWindows bounds the stream rows of all producers in a transaction, if they are more than one.
	purgeWindows = 10_000
)

// Truncate removes batches of a stream whose records are all below a position, the oldest first and at most limit of
// them, in transactions of 100, and returns how many it removed. The states of producers are kept: a batch that arrives
// again is still a duplicate. Several processes may call it at once. The error wraps [producer.ErrNoStream],
// [everonce.ErrInvalidArgument] for a negative argument, or [everonce.ErrStore].
func (s *Store[Tx]) Truncate(ctx context.Context, stream string, before int64, limit int) (removed int, err error) {
	return s.truncate(ctx, stream, s.st.below, before, limit)
}

// Expire is [Store.Truncate] for batches that were appended longer ago than age, by the store's clock. It ends at the
// first batch that was not, even if older times follow, for example after a clock was set back.
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
	for removed < limit {
		batch, found := min(cutBatch, limit-removed), 0
		var last, young int64 // the last position to be removed
		find := s.dialect.Call(st, stream, arg, int64(batch)).ForEach(func(r sqldb.Row) error {
			var at int64
			if young != 0 {
				return nil
			}
			err := r.Scan(&at, &young)
			if young == 0 {
				last, found = at, found+1
			}
			return err
		})
		if _, _, err := s.bounds(ctx, stream, find); err != nil || found == 0 {
			return removed, err
		}
		var n int
		err := s.inTx(ctx, "truncate", func(ctx context.Context, conn sqldb.Conn) (err error) {
			n, err = s.cut(ctx, conn, stream, last)
			return err
		})
		if err != nil {
			return removed, err
		}
		if removed += n; found < batch {
			return removed, nil
		}
	}
	return removed, nil
}

// cut removes the batches up to a position, unless another call has done so. It locks the stream first, as an append
// does.
func (s *Store[Tx]) cut(ctx context.Context, conn sqldb.Conn, stream string, last int64) (int, error) {
	var first, next int64
	if err := conn.Send(ctx, into(s.dialect.Call(s.st.lockStream, stream), &first, &next)); err != nil || first > last {
		return 0, err
	}
	cut := s.dialect.Call(s.st.cut, stream, last)
	err := conn.Send(ctx, cut, s.dialect.Call(s.st.first, stream, last+1))
	return int(cut.Affected), err
}

// Purge forgets producers that were neither granted an epoch nor appended a batch for the time of idle, by the store's
// clock and within 67 s; at most limit of them, in transactions of 100 producers, or fewer that have 10 000 streams
// together. It returns how many. Their later batches are refused as [producer.ErrForgotten], so idle must be longer
// than the time after which producers still repeat a batch. Their records are kept. Purge does not wait for appends.
// Several processes may call it at once. The error wraps [everonce.ErrInvalidArgument] for an idle that is not positive
// or a negative limit; [everonce.ErrStore]; or [everonce.ErrTxTooLong] if one producer has more streams than a
// transaction can forget.
func (s *Store[Tx]) Purge(ctx context.Context, idle time.Duration, limit int) (removed int, err error) {
	if idle <= 0 || limit < 0 {
		return 0, fmt.Errorf("sqlproducer: %w: idle is not positive, or the limit is negative", everonce.ErrInvalidArgument)
	}
	for more := true; more && removed < limit; {
		n, batch := 0, min(purgeBatch, limit-removed)
		err := s.inTx(ctx, "purge", func(ctx context.Context, conn sqldb.Conn) (err error) {
			n, more, err = s.purge(ctx, conn, idle.Microseconds()+1<<eraBits, batch)
			return err
		})
		if err != nil {
			return removed, err
		}
		removed += n
	}
	return removed, nil
}

// purge removes some of the idle producers, and reports whether there may be more.
func (s *Store[Tx]) purge(ctx context.Context, conn sqldb.Conn, micros int64, limit int) (removed int, more bool, err error) {
	var ids []int64
	err = conn.Send(ctx, s.dialect.Call(s.st.idle, micros, int64(limit)).ForEach(func(r sqldb.Row) error {
		var id int64
		err := r.Scan(&id)
		ids = append(ids, id)
		return err
	}))
	if err != nil || len(ids) == 0 {
		return 0, false, err
	}
	windows, err := s.windowsOf(ctx, conn, s.st.countWindows, ids)
	if err != nil {
		return 0, false, err
	}
	found := len(ids)
	for len(ids) > 0 && removed == 0 { // until some are not locked
		n := 1
		for sum := windows[ids[0]]; n < len(ids) && sum+windows[ids[n]] <= purgeWindows; n++ {
			sum += windows[ids[n]]
		}
		if removed, err = s.drop(ctx, conn, ids[:n], windows); err != nil {
			return 0, false, err
		}
		ids = ids[n:]
	}
	return removed, removed > 0 && (found == limit || len(ids) > 0), nil
}

// drop removes producers whose rows are locked, except those whose windows it cannot lock: a producer that appends at
// this moment has a window locked, and is left out. New windows need the producer's row.
func (s *Store[Tx]) drop(ctx context.Context, conn sqldb.Conn, ids []int64, windows map[int64]int) (removed int, err error) {
	locked, err := s.windowsOf(ctx, conn, s.st.lockWindows, ids)
	if err != nil {
		return 0, err
	}
	var calls []*sqldb.Call
	for _, id := range ids {
		if locked[id] != windows[id] {
			continue
		}
		if removed++; locked[id] > 0 {
			calls = append(calls, s.dialect.Call(s.st.dropWindows, id))
		}
		calls = append(calls, s.dialect.Call(s.st.drop, id))
	}
	if removed > 0 {
		err = conn.Send(ctx, calls...)
	}
	return removed, err
}

// windowsOf returns the number of windows of each producer that a statement finds: it returns a producer and a number
// in each row.
func (s *Store[Tx]) windowsOf(ctx context.Context, conn sqldb.Conn, st *sqldb.Statement, ids []int64) (map[int64]int, error) {
	counts := map[int64]int{}
	return counts, conn.Send(ctx, s.dialect.Call(st, s.dialect.Ints(ids)).ForEach(func(r sqldb.Row) error {
		var id, n int64
		err := r.Scan(&id, &n)
		counts[id] += int(n)
		return err
	}))
}
