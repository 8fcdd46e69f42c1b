package inbox

import (
	"context"
	"slices"
	"time"

	"github.com/everonce/everonce/internal/retry"
)

// unhandledAfter is for how long a message must have been due, and untried, before a worker says that no handler has its
// type: another worker may have one. unhandledEvery is how often it looks.
const (
	unhandledAfter = time.Minute
	unhandledEvery = time.Minute
)

// watch logs the types of which messages wait and the worker has no handler, each once, until ctx ends.
func (w *Worker[Tx]) watch(ctx context.Context) {
	known := slices.Clone(w.types)
	for {
		lanes, err := w.in.table.Queue.Lanes(ctx)
		if err != nil && ctx.Err() == nil {
			w.set.Log.Warn("inbox: the types that wait could not be counted; it is tried again", "consumer", w.in.consumer, "error", err)
		}
		for _, l := range lanes {
			if l.UntriedFor < unhandledAfter || slices.Contains(known, l.Lane) {
				continue
			}
			known = append(known, l.Lane)
			w.set.Log.Warn("inbox: messages wait whose type no handler of this worker has (add a handler, run the worker that has one, or compare the type with Handler.Types; everonce inbox stats)",
				"consumer", w.in.consumer, "type", l.Lane, "messages", l.Untried, "for", l.UntriedFor)
		}
		if retry.Pause(ctx, retry.Jitter(unhandledEvery)) != nil {
			return
		}
	}
}
