package sqlqueue

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"slices"
	"time"

	"github.com/everonce/everonce/internal/sqldb"
)

// ClaimRequest says what to claim.
type ClaimRequest struct {
	// Limit is how many rows, at most.
	Limit int
	// Lease is how long the rows are claimed, unless the claim is renewed.
	Lease time.Duration
	// Only, if not nil, are the lanes to choose from. Except are those to leave out.
	Only, Except []string
	// Heads claims only the first row of each order key: they are worked on at the same time.
	Heads bool
	// Floor leaves out rows of a lower rank, which may nevertheless exist: see [Pool].
	Floor int64
	// Crowd, if not nil, is the place from which to look at the order keys one by one, if there are too many rows
	// behind heads to find other heads by rank: see [Queue.Crowded]. The claim moves it.
	Crowd *Place
}

// Place is an order key in the order of all.
type Place struct{ group, key string }

// newToken returns a token for a claim: random, and never 0.
func newToken() int64 {
	var b [8]byte
	_, _ = rand.Read(b[:])                                // it never fails
	return int64(binary.LittleEndian.Uint64(b[:])>>1 | 1) //nolint:gosec // 63 bits
}

// head is true of a row that need not wait for an earlier row of its order key.
const head = "NOT EXISTS (SELECT 1 FROM {t} AS p WHERE p.{group} = q.{group} AND p.order_key = q.order_key" +
	" AND p.order_key <> '' AND p.state IN (0, 2) AND p.seq < q.seq)"

// lookAhead is how many rows with order keys a claim looks at, at most, to find heads among them.
const lookAhead = 1000

// taken holds the assignments of a claim.
const taken = "token = {1i}, due_at = {now} + {2i}, attempts = CASE WHEN attempts < 1000000000 THEN attempts + 1 ELSE attempts END"

// Claim claims rows that are due, and returns them with their token, by rank and in the order of their insertion. row
// returns where to scan a row and its own columns.
func Claim[T any](ctx context.Context, q *Queue, req ClaimRequest, row func(*T) (*Row, []any)) ([]T, int64, error) {
	token := newToken()
	var claimed []T // not to be looked at after an error: it may still be written
	var seen map[int64]bool
	each := func(accepts func(*Row) bool) func(sqldb.Row) error {
		return func(r sqldb.Row) error {
			var t T
			common, own := row(&t)
			if err := common.scan(q, r, own); err != nil {
				return err
			}
			if (accepts == nil || accepts(common)) && !seen[common.Seq] { // a second statement may find it before it is marked
				seen[common.Seq] = true
				claimed = append(claimed, t)
			}
			return nil
		}
	}
	choose := func(ctx context.Context, c sqldb.Conn) error {
		for _, call := range q.claim(token, &req) {
			if err := c.Send(ctx, call.ForEach(each(nil))); err != nil {
				return err
			}
		}
		if len(claimed) > req.Limit { // so many of each kind
			slices.SortFunc(claimed, func(a, b T) int {
				x, _ := row(&a)
				y, _ := row(&b)
				return cmp.Or(cmp.Compare(x.Rank, y.Rank), cmp.Compare(x.Seq, y.Seq))
			})
			claimed = claimed[:req.Limit]
		}
		if req.Crowd != nil && len(claimed) < req.Limit {
			rest := req
			rest.Limit -= len(claimed)
			found := len(claimed)
			if err := q.jump(ctx, c, token, &rest, each(nil)); err != nil {
				claimed = claimed[:found]
				return q.claimError(found, err)
			}
		}
		if req.Heads || len(claimed) == 0 || len(claimed) > req.Limit/2 {
			return nil
		}
		var followed []*sqldb.Call
		heads := len(claimed)
		for i := range claimed {
			if r, _ := row(&claimed[i]); r.OrderKey != "" {
				call, accepts := q.followers(token, req.Lease, r, max(1, (req.Limit-heads)/heads))
				followed = append(followed, call.ForEach(each(accepts)))
			}
		}
		if len(followed) == 0 {
			return nil
		}
		if err := c.Send(ctx, followed...); err != nil {
			claimed = claimed[:heads]
			return q.claimError(heads, err)
		}
		return nil
	}
	err := q.db.Write(ctx, func(ctx context.Context, c sqldb.Conn) error {
		claimed, seen = nil, make(map[int64]bool) // it may be run again
		if err := choose(ctx, c); err != nil || !q.dialect.MySQL {
			return err
		}
		locked := make([]*Row, len(claimed))
		for i := range claimed {
			locked[i], _ = row(&claimed[i])
		}
		return q.take(ctx, c, token, req.Lease, locked)
	})
	if err != nil {
		return nil, 0, err
	}
	slices.SortFunc(claimed, func(a, b T) int {
		x, _ := row(&a)
		y, _ := row(&b)
		return cmp.Compare(x.Seq, y.Seq)
	})
	return claimed, token, nil
}

// claimError returns the error of a claim whose later statements failed: nil if each statement commits alone and the
// first one has claimed rows, because those must not be claimed again.
func (q *Queue) claimError(claimed int, err error) error {
	if claimed > 0 && q.dialect.OneStatement {
		return nil
	}
	return err
}

// lanes returns the condition of the lanes that a claim chooses, with its arguments from the place on.
func (q *Queue) lanes(req *ClaimRequest, place int) (text string, args []any) {
	if req.Only != nil {
		text += " AND " + q.dialect.InTexts("q.{lane}", fmt.Sprintf("{%dt}", place))
		args = append(args, q.dialect.Texts(req.Only))
		place++
	}
	if len(req.Except) > 0 {
		text += " AND NOT (" + q.dialect.InTexts("q.{lane}", fmt.Sprintf("{%dt}", place)) + ")"
		args = append(args, q.dialect.Texts(req.Except))
	}
	return text, args
}

// due is true of rows that may be claimed.
const due = "q.state = 0 AND q.due_at <= {now}"

// claim makes the calls that claim rows without an order key, and heads of rows with one: the rows with the lowest
// rank.
func (q *Queue) claim(token int64, req *ClaimRequest) []*sqldb.Call {
	lanes, args := q.lanes(req, 5)
	args = append([]any{token, req.Lease.Microseconds(), int64(req.Limit), req.Floor}, args...)
	where := due + " AND q.rank >= {4i} AND q.rank <= {now}{in}" + lanes
	if q.dialect.MySQL {
		return q.locked(where, req.Limit, args)
	}
	return []*sqldb.Call{q.call("claim", "WITH line AS (SELECT q.seq, q.{group}, q.order_key, q.rank FROM {t} AS q WHERE q.order_key <> '' AND "+where+
		fmt.Sprintf(" ORDER BY q.rank, q.seq LIMIT %d),", lookAhead)+
		" heads AS (SELECT q.seq AS n FROM line AS q WHERE "+head+" ORDER BY q.rank, q.seq LIMIT {3i}),"+
		" ordered AS (SELECT q.seq AS n, q.rank AS r FROM {t} AS q WHERE "+q.among("q.seq", "SELECT n FROM heads")+" AND "+due+" {skip locked}),"+
		" free AS (SELECT q.seq AS n, q.rank AS r FROM {t} AS q WHERE q.order_key = '' AND "+where+" ORDER BY q.rank, q.seq LIMIT {3i} {skip locked}),"+
		" due AS (SELECT n FROM (SELECT n, r FROM ordered UNION ALL SELECT n, r FROM free) AS both_kinds ORDER BY r, n LIMIT {3i})"+
		" UPDATE {t} AS q SET "+taken+" FROM due WHERE q.seq = due.n RETURNING {columns}", args...)}
}

// among is true of a column that has a value of a sub-select, which is run first and once.
func (q *Queue) among(column, choice string) string {
	if q.dialect.Arrays {
		return column + " = ANY (ARRAY (" + choice + "))"
	}
	return column + " IN (" + choice + ")"
}

// jump claims heads by going from order key to order key, from a place on, which it moves on.
func (q *Queue) jump(ctx context.Context, c sqldb.Conn, token int64, req *ClaimRequest, each func(sqldb.Row) error) error {
	const next = " = (SELECT n.seq FROM {t} AS n WHERE n.state IN (0, 2) AND n.order_key <> '' AND (n.{group}, n.order_key) > "
	const order = " ORDER BY n.{group}, n.order_key, n.seq LIMIT 1)"
	var heads []int64
	visited := 0
	lanes, args := q.lanes(req, 3)
	walk := "WITH RECURSIVE heads AS (" +
		"SELECT q.seq, q.{group} AS grp, q.order_key, 1 AS steps FROM {t} AS q WHERE q.seq" + next + "({1t}, {2t})" + order +
		" UNION ALL SELECT q.seq, q.{group}, q.order_key, h.steps + 1 FROM heads AS h JOIN {t} AS q ON q.seq" + next + "(h.grp, h.order_key)" + order +
		fmt.Sprintf(" WHERE h.steps < %d)", lookAhead) +
		" SELECT q.seq, q.{group}, q.order_key, CASE WHEN " + due + "{in}" + lanes + " THEN 1 ELSE 0 END FROM heads AS h JOIN {t} AS q ON q.seq = h.seq ORDER BY h.steps"
	if q.dialect.MySQL {
		walk = walkKeys(due + "{in}" + lanes)
	}
	err := c.Send(ctx, q.call("jump", walk, append([]any{req.Crowd.group, req.Crowd.key}, args...)...).ForEach(func(r sqldb.Row) error {
		var seq, claimable int64
		var at Place
		if err := r.Scan(&seq, &at.group, &at.key, &claimable); err != nil {
			return err
		}
		visited++
		if len(heads) < req.Limit {
			*req.Crowd = at
			if claimable == 1 {
				heads = append(heads, seq)
			}
		}
		return nil
	}))
	if err != nil {
		return err
	}
	if visited < lookAhead && len(heads) < req.Limit { // the end of the line: begin anew
		*req.Crowd = Place{}
	}
	if len(heads) == 0 {
		return nil
	}
	if q.dialect.MySQL {
		return c.Send(ctx, q.call("claim_jumped", "SELECT {columns} FROM {t} AS q WHERE "+q.dialect.InInts("q.seq", "{1t}")+" AND "+due+" AND "+first+" {skip locked}",
			q.dialect.Ints(heads)).ForEach(each))
	}
	return c.Send(ctx, q.call("claim_jumped", "WITH due AS (SELECT q.seq AS n FROM {t} AS q WHERE "+q.dialect.InInts("q.seq", "{3t}")+" AND "+due+" AND "+head+" {skip locked})"+
		" UPDATE {t} AS q SET "+taken+" FROM due WHERE q.seq = due.n RETURNING {columns}", token, req.Lease.Microseconds(), q.dialect.Ints(heads)).ForEach(each))
}

// Crowded reports whether so many rows with order keys are due that a claim by rank may not find the heads behind them.
func (q *Queue) Crowded(ctx context.Context) (crowded bool, err error) {
	call := q.call("crowded", fmt.Sprintf("SELECT count(*) FROM (SELECT 1 FROM {t} AS q WHERE {keyed} AND "+due+" AND q.rank <= {now}{in} LIMIT %d) AS found", lookAhead))
	err = q.db.Read(ctx, call.ForEach(func(r sqldb.Row) error {
		var n int64
		err := r.Scan(&n)
		crowded = n >= lookAhead
		return err
	}))
	return crowded, err
}

// followers makes the call that claims the rows that follow a head without a gap: as long as the head is claimed, no
// other claim takes it. accepts, if not nil, says which of the call's rows those are.
func (q *Queue) followers(token int64, lease time.Duration, r *Row, limit int) (call *sqldb.Call, accepts func(*Row) bool) {
	if q.dialect.MySQL {
		return q.lockedFollowers(r, limit), gapless()
	}
	// The rows are locked before they are looked at: another claim may be ending some of them just now.
	return q.call("claim_followers", "WITH line AS (SELECT q.seq, q.state, q.due_at FROM {t} AS q"+
		" WHERE q.{group} = {4t} AND q.order_key = {5t} AND q.order_key <> '' AND q.state IN (0, 2) AND q.seq > {6i} ORDER BY q.seq LIMIT {3i} {for update}),"+
		" due AS (SELECT q.seq AS n, sum(CASE WHEN "+due+" THEN 0 ELSE 1 END) OVER (ORDER BY q.seq) AS stops FROM line AS q)"+
		" UPDATE {t} AS q SET "+taken+" FROM due WHERE q.seq = due.n AND due.stops = 0 AND q.state = 0 AND q.due_at <= {now}"+
		" AND EXISTS (SELECT 1 FROM {t} AS h WHERE h.seq = {6i} AND h.token = {1i} AND h.state = 0 AND h.due_at > {now}) RETURNING {columns}",
		token, lease.Microseconds(), int64(limit), r.Group, r.OrderKey, r.Seq), nil
}
