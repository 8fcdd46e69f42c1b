package sqlqueue

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/internal/sqldb"
)

// Other programs write rows too, and a database may hold there what no column of ours is declared to hold. Such a row
// must not keep others from being claimed or listed: it is read as far as it can be, and says why it is [Row.Corrupt].

// oddTypes is true of rows whose columns cannot be compared as claims do, in a database whose columns hold values of
// any type.
const oddTypes = "typeof(rank) NOT IN ('integer', 'real') OR typeof(due_at) NOT IN ('integer', 'real')" + // RETURNING knows no q
	" OR typeof(id) <> 'text' OR typeof({group}) <> 'text' OR typeof({lane}) <> 'text' OR typeof(order_key) <> 'text'"

// scan reads a row, and the columns specific to its table into own. A value that cannot be read is not an error of the
// scan.
func (r *Row) scan(q *Queue, from sqldb.Row, own []any) error {
	var odd int64
	err := from.Scan(append([]any{
		&r.Seq, &r.ID, &r.Group, &r.Lane, &r.OrderKey, (*int64)(&r.State), &r.Attempts, &r.Rank, &r.DueAt, &r.CreatedAt,
		&r.DoneAt, &r.Token, &r.Error, &r.Now, &odd,
	}, own...)...)
	if misfit, ok := errors.AsType[*sqldb.Misfit](err); ok {
		r.Corrupt = r.corrupt(fmt.Sprintf("the column %s holds a %s", q.names[misfit.Column], misfit.Holds))
		return nil
	}
	if err == nil {
		r.Corrupt = r.judge(odd)
	}
	return err
}

// judge returns why neither this package nor another program that follows the documentation can have written a row.
func (r *Row) judge(odd int64) error {
	switch {
	case odd != 0:
		return r.corrupt("rank or due_at is not a number, or a column that must be text is a blob")
	case r.ID == "" || r.Group == "":
		return r.corrupt("its ID, or the name of its topic, consumer or definition, is empty")
	case !Stores(r.ID) || !Stores(r.Group) || !Stores(r.Lane) || !Stores(r.OrderKey):
		return r.corrupt("a text is not UTF-8 without NUL")
	case r.Attempts < 0 || r.CreatedAt < 0 || r.CreatedAt > lastTime:
		return r.corrupt("attempts or created_at is out of range")
	}
	return nil
}

func (r *Row) corrupt(why string) error {
	return fmt.Errorf("%w: row %d: %s", driver.ErrCorruptRecord, r.Seq, why)
}

// Readable returns why a row cannot be read, or why one of its texts cannot, which the columns of the table's own have.
func (r *Row) Readable(texts ...string) error {
	if r.Corrupt != nil {
		return r.Corrupt
	}
	for _, text := range texts {
		if !Stores(text) {
			return r.corrupt("a text is not UTF-8 without NUL")
		}
	}
	return nil
}

// A call of [ClaimOdd] looks at oddLook rows, and claims oddAtOnce of them, at most.
const (
	oddLook   = 1000
	oddAtOnce = 10
)

// beforeAll is where a pass of ClaimOdd through a table begins.
const beforeAll int64 = math.MinInt64

// ClaimOdd claims rows that [Claim] may not find, whatever their lane, so that they are set aside. It looks at some of
// the rows that follow the number after, and moves after on: at the end of the table to beforeAll. A database whose
// columns have types has no such rows.
func ClaimOdd[T any](ctx context.Context, q *Queue, after *int64, lease time.Duration, row func(*T) (*Row, []any)) (claimed []T, token int64, err error) {
	if !q.dialect.AnyType {
		return nil, 0, nil
	}
	const odd = "q.state = 0 AND {odd} = 1 AND NOT (typeof(q.due_at) IN ('integer', 'real') AND q.due_at > {now}){in}"
	var last, found, seen int64
	look := q.call("odd", "SELECT coalesce(max(n), 0), coalesce(sum(is_odd), 0), count(*) FROM (SELECT q.seq AS n, CASE WHEN "+odd+" THEN 1 ELSE 0 END AS is_odd"+
		" FROM {t} AS q WHERE q.seq > {1i} ORDER BY q.seq LIMIT {2i}) AS part", *after, int64(oddLook))
	err = q.db.Read(ctx, look.ForEach(func(r sqldb.Row) error { return r.Scan(&last, &found, &seen) })) // who only looks keeps no writer waiting
	if err != nil {
		return nil, 0, err
	}
	next := last
	if seen < oddLook {
		next = beforeAll
	}
	if found == 0 { // as good as always
		*after = next
		return nil, 0, nil
	}
	token = newToken()
	call := q.call("claim_odd", "WITH due AS (SELECT q.seq AS n FROM {t} AS q WHERE q.seq > {3i} AND q.seq <= {4i} AND "+odd+" LIMIT {5i})"+
		" UPDATE {t} AS q SET "+taken+" FROM due WHERE q.seq = due.n RETURNING {columns}", token, lease.Microseconds(), *after, last, int64(oddAtOnce))
	err = q.db.Write(ctx, func(ctx context.Context, c sqldb.Conn) error {
		claimed = nil // it may be run again
		return c.Send(ctx, call.ForEach(func(from sqldb.Row) error {
			var t T
			common, own := row(&t)
			if err := common.scan(q, from, own); err != nil {
				return err
			}
			if common.Corrupt == nil { // the claim has written over it
				common.Corrupt = common.judge(1)
			}
			claimed = append(claimed, t)
			return nil
		}))
	})
	if err != nil {
		return nil, 0, err
	}
	if len(claimed) < oddAtOnce { // otherwise there may be more among them
		*after = next
	}
	return claimed, token, nil
}
