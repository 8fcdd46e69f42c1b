package sqlqueue

import (
	"context"
	"time"

	"github.com/everonce/everonce/internal/sqldb"
)

// Stats are the figures of a queue.
type Stats struct {
	// Waiting are due, or retried later; InHand are being worked on; Delayed are due later, and were never tried.
	Waiting, InHand, Delayed int
	// Blocked and Dead are set aside.
	Blocked, Dead int
	// Oldest is the age of the oldest row that is due: the lag.
	Oldest time.Duration
}

// Stats counts what is not done. It reads all of that.
func (q *Queue) Stats(ctx context.Context) (s Stats, err error) {
	call := q.call("stats", "SELECT coalesce(sum(CASE WHEN q.state = 0 AND NOT (q.token <> 0 AND q.due_at > {now}) AND (q.due_at <= {now} OR q.attempts > 0) THEN 1 ELSE 0 END), 0),"+
		" coalesce(sum(CASE WHEN q.state = 0 AND q.token <> 0 AND q.due_at > {now} THEN 1 ELSE 0 END), 0),"+
		" coalesce(sum(CASE WHEN q.state = 0 AND q.token = 0 AND q.due_at > {now} AND q.attempts = 0 THEN 1 ELSE 0 END), 0),"+
		" coalesce(sum(CASE WHEN q.state = 2 THEN 1 ELSE 0 END), 0), coalesce(sum(CASE WHEN q.state = 3 THEN 1 ELSE 0 END), 0),"+
		" coalesce("+q.dialect.Whole("{now} - min(CASE WHEN q.state = 0 AND (q.due_at <= {now} OR q.attempts > 0) AND q.created_at BETWEEN 1 AND {now} THEN q.created_at END)")+", 0)"+
		" FROM (SELECT state, token, due_at, attempts, created_at FROM {t} AS q WHERE q.state = 0{in}"+
		" UNION ALL SELECT state, token, due_at, attempts, created_at FROM {t} AS q WHERE q.state IN (2, 3){in}) AS q")
	err = q.db.Read(ctx, call.ForEach(func(r sqldb.Row) error {
		var n [6]int64
		if err := r.Scan(&n[0], &n[1], &n[2], &n[3], &n[4], &n[5]); err != nil {
			return err
		}
		s = Stats{
			Waiting: int(n[0]), InHand: int(n[1]), Delayed: int(n[2]), Blocked: int(n[3]), Dead: int(n[4]),
			Oldest: time.Duration(n[5]) * time.Microsecond,
		}
		return nil
	}))
	return s, err
}
