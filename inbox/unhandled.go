package inbox

import (
	"context"
	"slices"
	"time"

	"github.com/everonce/everonce/internal/retry"
)

// unhandledAfter is how long a message must have been due and untried before a worker logs that it has no handler for
// the type: another worker may have one. unhandledEvery is the interval of the checks.
const (
	unhandledAfter = time.Minute
	unhandledEvery = time.Minute
)

// watch logs, until ctx ends, the types of waiting messages for which the worker has no handler, each type once.
func (w *Worker[Tx]) watch(ctx context.Context) {
	known := slices.Clone(w.types)
	for {
		lanes, err := w.in.table.Queue.Lanes(ctx)
		if err != nil && ctx.Err() == nil {
			w.set.Log.Warn("inbox: the types of waiting messages could not be counted; trying again later", "consumer", w.in.consumer, "error", err)
		}
		for _, l := range lanes {
			if l.UntriedFor < unhandledAfter || slices.Contains(known, l.Lane) {
				continue
			}
			known = append(known, l.Lane)
			w.set.Log.Warn("inbox: messages wait for which this worker has no handler (add a handler, run the worker that has one, or compare the type with Handler.Types; everonce inbox stats)",
				"consumer", w.in.consumer, "type", l.Lane, "messages", l.Untried, "for", l.UntriedFor)
		}
		if retry.Pause(ctx, retry.Jitter(unhandledEvery)) != nil {
			return
		}
	}
}
