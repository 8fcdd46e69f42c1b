package sqlqueue

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/everonce/everonce/internal/sqldb"
)

// MySQL and MariaDB have no UPDATE that returns rows, no UPDATE of rows that a sub-select of the same table chooses,
// and no index of a part of a table. So:
//
//   - Rows are locked, and read, by one statement, and changed by a second one, by their numbers, in the same
//     transaction.
//   - Two columns that the server keeps begin the indexes: keyed says that there is an order key, open that later rows
//     of the key wait for the row.
//   - A claim looks for its rows without locks, and then locks them by their numbers: a look through an index with locks
//     would hold entries that ending a row needs, while it waits for that row. MariaDB also keeps the locks of rows that
//     it has passed over until the transaction ends: a process that is stopped in a claim would keep from others what it
//     has not claimed.
//   - An index is named where a server that sorts instead would look through all that it sorts.

// mysqlKeys are the columns and the indexes.
func (s *Spec) mysqlKeys() []string {
	return []string{
		"keyed tinyint GENERATED ALWAYS AS (order_key <> '') STORED",
		"open tinyint GENERATED ALWAYS AS (order_key <> '' AND state IN (0, 2)) STORED",
		"again {int} NOT NULL DEFAULT 0",
		"UNIQUE KEY id (" + strings.Join(s.Unique, ", ") + ")",
		"KEY waiting (state, keyed, rank)",
		"KEY line (open, " + s.Group + ", order_key)",
		"KEY done (done_at)",
	}
}

// first replaces [head] on MySQL: it looks at one entry of the index.
const first = "q.seq = (SELECT p.seq FROM {t} AS p FORCE INDEX (line) WHERE p.open = 1 AND p.{group} = q.{group} AND p.order_key = q.order_key ORDER BY p.seq LIMIT 1)"

// locked makes the calls that lock and read what [Queue.claim] claims: heads, and rows without an order key, up to the
// limit of each. It looks at more of the latter, because claims at the same time find the same.
func (q *Queue) locked(where string, limit int, args []any) []*sqldb.Call {
	ahead := int64(min(max(100, 10*limit), lookAhead))
	return []*sqldb.Call{
		q.call("claim", "SELECT {columns} FROM (SELECT q.seq AS n FROM (SELECT q.seq, q.{group}, q.order_key, q.rank FROM {t} AS q FORCE INDEX (waiting) WHERE {keyed} AND "+where+
			fmt.Sprintf(" ORDER BY q.rank, q.seq LIMIT %d) AS q", lookAhead)+
			" WHERE "+first+" ORDER BY q.rank, q.seq LIMIT {3i}) AS due STRAIGHT_JOIN {t} AS q ON q.seq = due.n WHERE "+due+" {skip locked}", args...),
		q.call("claim_free", "SELECT {columns} FROM (SELECT q.seq AS n FROM {t} AS q FORCE INDEX (waiting) WHERE q.keyed = 0 AND "+where+
			fmt.Sprintf(" ORDER BY q.rank, q.seq LIMIT {%di}) AS due STRAIGHT_JOIN {t} AS q ON q.seq = due.n WHERE ", len(args)+1)+due+" LIMIT {3i} {skip locked}",
			append(args, ahead)...),
	}
}

// walkKeys is the walk of [Queue.jump] from order key to order key.
func walkKeys(claimable string) string {
	return "SELECT q.seq, q.{group}, q.order_key, CASE WHEN " + claimable + " THEN 1 ELSE 0 END FROM (SELECT min(n.seq) AS n FROM {t} AS n FORCE INDEX (line)" +
		" WHERE n.open = 1 AND (n.{group} > {1t} OR n.{group} = {1t} AND n.order_key > {2t}) GROUP BY n.{group}, n.order_key ORDER BY n.{group}, n.order_key" +
		fmt.Sprintf(" LIMIT %d) AS heads STRAIGHT_JOIN {t} AS q ON q.seq = heads.n ORDER BY q.{group}, q.order_key", lookAhead)
}

// lockedFollowers makes the call that locks and reads the rows behind a head, up to one that another transaction has
// locked: the head is not to wait for that. Which of them follow without a gap is for [gapless] to say, when they are
// locked.
func (q *Queue) lockedFollowers(r *Row, limit int) *sqldb.Call {
	return q.call("claim_followers", "SELECT {columns} FROM (SELECT n.seq AS n FROM {t} AS n FORCE INDEX (line)"+
		" WHERE n.open = 1 AND n.{group} = {1t} AND n.order_key = {2t} AND n.seq > {3i} ORDER BY n.seq LIMIT {4i}) AS line"+
		" STRAIGHT_JOIN {t} AS q ON q.seq = line.n ORDER BY q.seq {no wait}", r.Group, r.OrderKey, r.Seq, int64(limit))
}

// gapless accepts rows, in the order of their key, up to one that is not due; it passes over those that were ended
// since they were looked for.
func gapless() func(r *Row) bool {
	gap := false
	return func(r *Row) bool {
		open := r.State == Pending || r.State == Blocked
		gap = gap || open && (r.State == Blocked || r.DueAt > r.Now)
		return open && !gap
	}
}

// take writes that locked rows are claimed, and sets the same in rows.
func (q *Queue) take(ctx context.Context, c sqldb.Conn, token int64, lease time.Duration, rows []*Row) error {
	if len(rows) == 0 {
		return nil
	}
	seqs := make([]int64, len(rows))
	for i, r := range rows {
		seqs[i] = r.Seq
		r.Token, r.DueAt = token, r.Now+lease.Microseconds()
		if r.Attempts < 1_000_000_000 {
			r.Attempts++
		}
	}
	return c.Send(ctx, q.call("take", "UPDATE {t} AS q SET "+taken+" WHERE "+q.dialect.InInts("q.seq", "{3t}"), token, lease.Microseconds(), q.dialect.Ints(seqs)))
}

// write changes or removes the rows that a sub-select chooses: change begins the statement, and again, if not empty,
// ends it with the condition that still has to hold. It returns how many.
func (q *Queue) write(ctx context.Context, c sqldb.Conn, name, change, choice, again string, args ...any) (int, error) {
	if !q.dialect.MySQL {
		call := q.call(name, change+" WHERE q.seq IN ("+choice+")"+again, args...)
		err := c.Send(ctx, call)
		return int(call.Affected), err
	}
	var seqs []int64
	err := c.Send(ctx, q.call(name+"_choice", choice, args...).ForEach(func(r sqldb.Row) error {
		var seq int64
		err := r.Scan(&seq)
		seqs = append(seqs, seq)
		return err
	}))
	if err != nil || len(seqs) == 0 {
		return 0, err
	}
	place := fmt.Sprintf("{%dt}", len(args)+1)
	call := q.call(name, change+" WHERE "+q.dialect.InInts("q.seq", place), append(args, q.dialect.Ints(seqs))...)
	err = c.Send(ctx, call)
	return int(call.Affected), err
}
