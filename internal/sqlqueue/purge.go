package sqlqueue

import (
	"context"
	"time"

	"github.com/everonce/everonce/internal/sqldb"
)

// purgeBatch is how many rows one statement removes: it holds locks for as long as it runs.
const purgeBatch = 1000

// Purge removes rows that were done, or discarded, longer ago than the retention, in batches, at most limit of them. It
// returns how many it has removed.
func (q *Queue) Purge(ctx context.Context, retention time.Duration, limit int) (removed int, err error) {
	for removed < limit {
		batch := min(purgeBatch, limit-removed)
		n := 0
		err := q.db.Write(ctx, func(ctx context.Context, c sqldb.Conn) (err error) {
			n, err = q.write(ctx, c, "purge", "{delete}", "SELECT q.seq FROM {t} AS q{done} WHERE q.state IN (4, 5) AND q.done_at <= {now} - {1i}{in} ORDER BY q.done_at LIMIT {2i} {skip locked}",
				" AND q.state IN (4, 5) AND q.done_at <= {now} - {1i}", retention.Microseconds(), int64(batch))
			return err
		})
		if err != nil {
			return removed, err // n may still be written
		}
		if removed += n; n < batch {
			return removed, nil
		}
	}
	return removed, nil
}
