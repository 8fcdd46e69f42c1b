package sqlqueue

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/binary"
	"slices"
	"time"

	"github.com/everonce/everonce/internal/sqldb"
)

// ClaimRequest says what to claim.
type ClaimRequest struct {
	// Limit is how many rows, at most.
	Limit int
	// Lease is how long the rows are in hand, unless it is renewed.
	Lease time.Duration
	// Only, if not nil, are the lanes to choose from. Except are those to leave out.
	Only, Except []string
	// Heads leaves out what follows the head of an order key.
	Heads bool
	// Floor leaves out rows of a lower rank, which may be there all the same: see [Pool].
	Floor int64
}

// NewToken returns a token for a claim: random, and never 0.
func NewToken() int64 {
	var b [8]byte
	_, _ = rand.Read(b[:]) //nolint:errcheck // it never fails
	return int64(binary.LittleEndian.Uint64(b[:])>>1 | 1)
}

// head is true of rows that have no order key, or of which there is none before them that its key waits for.
const head = "(q.order_key = '' OR NOT EXISTS (SELECT 1 FROM {t} AS p WHERE p.{group} = q.{group} AND p.order_key = q.order_key" +
	" AND p.order_key <> '' AND p.state IN (0, 2) AND p.seq < q.seq))"

// taken is what a claim writes.
const taken = "token = {1i}, due_at = {now} + {2i}, attempts = attempts + 1"

// Claim claims rows that are due, and returns them with their token, by rank and in the order of their insertion. row
// returns where to scan a row and its own columns.
func Claim[T any](ctx context.Context, q *Queue, req ClaimRequest, row func(*T) (*Row, []any)) ([]T, int64, error) {
	token := NewToken()
	var claimed []T // not to be looked at after an error: it may still be written
	err := q.db.Write(ctx, func(ctx context.Context, c sqldb.Conn) error {
		claimed = nil // it may be run again
		each := func(r sqldb.Row) error {
			var t T
			common, own := row(&t)
			if err := r.Scan(common.places(own)...); err != nil {
				return err
			}
			claimed = append(claimed, t)
			return nil
		}
		if err := c.Send(ctx, q.claim(token, &req).ForEach(each)); err != nil {
			return err
		}
		if req.Heads || len(claimed) > req.Limit/2 {
			return nil
		}
		var followed []*sqldb.Call
		for i := range claimed {
			if r, _ := row(&claimed[i]); r.OrderKey != "" {
				followed = append(followed, q.followers(token, req.Lease, r, max(1, (req.Limit-len(claimed))/len(claimed))).ForEach(each))
			}
		}
		if len(followed) == 0 {
			return nil
		}
		return c.Send(ctx, followed...)
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

func (q *Queue) claim(token int64, req *ClaimRequest) *sqldb.Call {
	lanes, args := "", []any{token, req.Lease.Microseconds(), int64(req.Limit), req.Floor}
	if req.Only != nil {
		lanes += " AND " + q.dialect.InTexts("q.{lane}", "{5t}")
		args = append(args, q.dialect.Texts(req.Only))
	}
	if len(req.Except) > 0 {
		lanes += " AND NOT (" + q.dialect.InTexts("q.{lane}", map[int]string{4: "{5t}", 5: "{6t}"}[len(args)]) + ")"
		args = append(args, q.dialect.Texts(req.Except))
	}
	return q.call("claim", "WITH due AS (SELECT q.seq AS n FROM {t} AS q WHERE q.state = 0 AND q.rank >= {4i} AND q.rank <= {now} AND q.due_at <= {now}{in}"+lanes+
		" AND "+head+" ORDER BY q.rank, q.seq LIMIT {3i} {skip locked})"+
		" UPDATE {t} AS q SET "+taken+" FROM due WHERE q.seq = due.n RETURNING {columns}", args...)
}

// followers makes the call that claims what follows a head without a gap: as long as the head is in hand, nobody else
// claims it.
func (q *Queue) followers(token int64, lease time.Duration, r *Row, limit int) *sqldb.Call {
	return q.call("claim_followers", "WITH line AS (SELECT q.seq, CASE WHEN q.state = 0 AND q.due_at <= {now} THEN 0 ELSE 1 END AS stop FROM {t} AS q"+
		" WHERE q.{group} = {4t} AND q.order_key = {5t} AND q.order_key <> '' AND q.state IN (0, 2) AND q.seq > {6i} ORDER BY q.seq LIMIT {3i}),"+
		" due AS (SELECT seq AS n, sum(stop) OVER (ORDER BY seq) AS stops FROM line)"+
		" UPDATE {t} AS q SET "+taken+" FROM due WHERE q.seq = due.n AND due.stops = 0 AND q.state = 0 AND q.due_at <= {now}"+
		" AND EXISTS (SELECT 1 FROM {t} AS h WHERE h.seq = {6i} AND h.token = {1i} AND h.state = 0 AND h.due_at > {now}) RETURNING {columns}",
		token, lease.Microseconds(), int64(limit), r.Group, r.OrderKey, r.Seq)
}
