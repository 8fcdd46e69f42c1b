package sqlqueue

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/everonce/everonce/internal/sqldb"
)

// Filter chooses rows. The zero Filter chooses all.
type Filter struct {
	// States, if not empty, are the states to choose from; [InHand] is one of them here.
	States []State
	// Seq, if not 0, and Lane, ID and OrderKey, if not empty, select the rows that have them.
	Seq                int64
	Lane, ID, OrderKey string
	// OlderThan, if not 0, chooses rows that were created longer ago.
	OlderThan time.Duration
	// After chooses rows with a larger number; Limit is how many, at most: 0 is no limit.
	After int64
	Limit int
}

// where returns the condition of a filter, with its arguments from the place on.
func (f *Filter) where(place int) (text string, args []any) {
	add := func(condition string, kind byte, arg any) {
		text += fmt.Sprintf(condition, fmt.Sprintf("{%d%c}", place, kind))
		args = append(args, arg)
		place++
	}
	if f.After != 0 {
		add(" AND q.seq > %s", 'i', f.After)
	}
	if f.Seq != 0 {
		add(" AND q.seq = %s", 'i', f.Seq)
	}
	if f.Lane != "" {
		add(" AND q.{lane} = %s", 't', f.Lane)
	}
	if f.ID != "" {
		add(" AND q.id = %s", 't', f.ID)
	}
	if f.OrderKey != "" {
		add(" AND q.order_key = %s", 't', f.OrderKey)
	}
	if f.OlderThan != 0 {
		add(" AND q.created_at <= {now} - %s", 'i', f.OlderThan.Microseconds())
	}
	if len(f.States) > 0 {
		numbers := make([]string, len(f.States))
		for i, s := range f.States {
			if s == InHand {
				s = Pending
			}
			numbers[i] = strconv.FormatInt(int64(s), 10)
		}
		text += " AND q.state IN (" + strings.Join(numbers, ", ") + ")"
		switch rest, held := slices.Contains(f.States, Pending), slices.Contains(f.States, InHand); {
		case rest && !held:
			text += " AND NOT " + isInHand
		case held && !rest:
			text += " AND (q.state <> 0 OR " + isInHand + ")"
		}
	}
	return text, args
}

// isInHand is true of rows that a claim has.
const isInHand = "(q.state = 0 AND q.token <> 0 AND q.due_at > {now})"

func (f *Filter) limit() int64 {
	if f.Limit <= 0 {
		return 1 << 40
	}
	return int64(f.Limit)
}

// Common returns rows in the order of their insertion, without the columns of the table's own.
func (q *Queue) Common(ctx context.Context, f Filter) ([]Row, error) {
	return list(ctx, q, "{common}", f, func(r *Row) (*Row, []any) { return r, nil })
}

// List returns rows in the order of their insertion.
func List[T any](ctx context.Context, q *Queue, f Filter, row func(*T) (*Row, []any)) ([]T, error) {
	return list(ctx, q, "{columns}", f, row)
}

func list[T any](ctx context.Context, q *Queue, columns string, f Filter, row func(*T) (*Row, []any)) (rows []T, err error) {
	where, args := f.where(2)
	call := q.call("list", "SELECT "+columns+" FROM {t} AS q WHERE true{in}"+where+" ORDER BY q.seq LIMIT {1i}", append([]any{f.limit()}, args...)...)
	err = q.db.Read(ctx, call.ForEach(func(r sqldb.Row) error {
		var t T
		common, own := row(&t)
		if err := common.scan(q, r, own); err != nil {
			return err
		}
		rows = append(rows, t)
		return nil
	}))
	return rows, err
}

// Count returns how many rows a filter chooses.
func (q *Queue) Count(ctx context.Context, f Filter) (n int, err error) {
	where, args := f.where(2)
	call := q.call("count", "SELECT count(*) FROM (SELECT 1 FROM {t} AS q WHERE true{in}"+where+" LIMIT {1i}) AS found", append([]any{f.limit()}, args...)...)
	err = q.db.Read(ctx, call.ForEach(func(r sqldb.Row) error {
		var count int64
		err := r.Scan(&count)
		n = int(count)
		return err
	}))
	return n, err
}

// Retry makes rows that were set aside, or that wait for a later try, due at once, with no attempts counted. It returns
// how many.
func (q *Queue) Retry(ctx context.Context, f Filter) (int, error) {
	return q.change(ctx, f, []State{Pending, Blocked, Dead}, "retry", "state = 0, due_at = {now}, rank = {now}, attempts = 0, error = '', token = 0")
}

// Discard gives rows up, pending or set aside, and returns how many. They are kept as discarded until the retention
// ends.
func (q *Queue) Discard(ctx context.Context, f Filter) (int, error) {
	return q.change(ctx, f, []State{Pending, Blocked, Dead}, "discard", "state = 5, done_at = {now}, token = 0")
}

// change updates the rows of a filter that are in one of the states, and not claimed.
func (q *Queue) change(ctx context.Context, f Filter, states []State, name, set string) (int, error) {
	var n int // not to be looked at after an error: it may still be written
	if len(f.States) > 0 {
		states = slices.DeleteFunc(states, func(s State) bool { return !slices.Contains(f.States, s) })
		if len(states) == 0 {
			return 0, nil
		}
	}
	f.States = states
	where, args := f.where(2)
	err := q.db.Write(ctx, func(ctx context.Context, c sqldb.Conn) (err error) {
		n, err = q.write(ctx, c, name, "UPDATE {t} AS q SET "+set, "SELECT q.seq FROM {t} AS q WHERE true{in}"+where+" ORDER BY q.seq LIMIT {1i} {skip locked}", where,
			append([]any{f.limit()}, args...)...)
		return err
	})
	if err != nil {
		return 0, err
	}
	return n, nil
}
