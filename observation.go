package everonce

import (
	"context"
	"log/slog"
	"time"

	"github.com/everonce/everonce/internal/panics"
)

// observation is that of one operation, step or settlement, from Start to End.
type observation struct {
	observer Observer
	ctx      context.Context
	ev       *Event
	started  time.Time
}

// observe starts the observation of the operation, or of the settlement of a step of it, whose event is the operation's.
func (op *operation) observe(ctx context.Context, kind string, step string) observation {
	o := op.newObservation(ctx, kind, step)
	op.ev = o.ev
	return o
}

// newObservation starts one in the operation, with an event of its own.
func (op *operation) newObservation(ctx context.Context, kind string, step string) observation {
	o := observation{
		observer: op.set.Observer, ctx: ctx, started: time.Now(),
		ev: &Event{Op: Op{Kind: kind, KeyHash: op.id.Short(), Scope: op.key.Scope, Step: step}},
	}
	o.ctx = tellStart(ctx, o.observer, o.ev.Op)
	return o
}

// end ends it. An outcome of 0 is that of work that did not return: the event has it already.
func (o *observation) end(outcome Outcome, err error) {
	if outcome != 0 {
		o.ev.Outcome, o.ev.Err = outcome, err
	}
	o.ev.Duration = time.Since(o.started)
	tellEnd(o.ctx, o.observer, *o.ev)
}

// tellStart tells an observer of a start, and returns the context from there on.
func tellStart(ctx context.Context, o Observer, op Op) (from context.Context) {
	from = ctx
	defer panics.Log(ctx, "observer", slog.String("key", op.KeyHash))
	if its := o.Start(ctx, op); its != nil {
		from = its
	}
	return from
}

func tellEnd(ctx context.Context, o Observer, ev Event) {
	defer panics.Log(ctx, "observer", slog.String("key", ev.KeyHash))
	o.End(ctx, ev)
}
