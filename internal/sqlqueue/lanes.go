package sqlqueue

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/everonce/everonce/internal/sqldb"
)

// LaneStats are the figures of one lane.
type LaneStats struct {
	Lane string
	// Waiting are due, or retried later, and not claimed. Untried of them are due, and were never claimed.
	Waiting, Untried int
	// UntriedFor is how long the first of the untried ones has been due.
	UntriedFor time.Duration
}

// Lanes counts what waits, by lane, in the order of their names. It reads all of that.
func (q *Queue) Lanes(ctx context.Context) (lanes []LaneStats, err error) {
	const untried = "q.token = 0 AND q.attempts = 0 AND q.due_at <= {now}"
	call := q.call("lanes", "SELECT q.{lane}, count(*), sum(CASE WHEN "+untried+" THEN 1 ELSE 0 END), coalesce({now} - min(CASE WHEN "+untried+" THEN q.due_at END), 0)"+
		" FROM {t} AS q WHERE q.state = 0 AND NOT (q.token <> 0 AND q.due_at > {now}) AND (q.due_at <= {now} OR q.attempts > 0){in} GROUP BY q.{lane}")
	err = q.db.Read(ctx, call.ForEach(func(r sqldb.Row) error {
		var lane string
		var waiting, untried, age int64
		if err := r.Scan(&lane, &waiting, &untried, &age); err != nil {
			return err
		}
		lanes = append(lanes, LaneStats{lane, int(waiting), int(untried), time.Duration(age) * time.Microsecond})
		return nil
	}))
	slices.SortFunc(lanes, func(a, b LaneStats) int { return strings.Compare(a.Lane, b.Lane) })
	return lanes, err
}
