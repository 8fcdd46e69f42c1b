package everonce

import (
	"context"
	"time"
)

// watch is the observation of one operation, from Start to End.
type watch struct {
	observer Observer
	ctx      context.Context
	ev       *Event
	started  time.Time
}

// observe starts the observation of the operation, or of the settlement of a step of it.
func (op *operation) observe(ctx context.Context, kind OpKind, step string) watch {
	w := watch{
		observer: op.set.Observer, started: time.Now(),
		ev: &Event{Op: Op{Kind: kind, KeyHash: op.id.Short(), Scope: op.key.Scope, Step: step}},
	}
	w.ctx = w.observer.Start(ctx, w.ev.Op)
	op.ev = w.ev
	return w
}

// end ends it. An outcome of 0 is that of work that did not return: the event has it already.
func (w *watch) end(o Outcome, err error) {
	if o != 0 {
		w.ev.Outcome, w.ev.Err = o, err
	}
	w.ev.Duration = time.Since(w.started)
	w.observer.End(w.ctx, *w.ev)
}
