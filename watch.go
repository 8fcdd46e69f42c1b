package everonce

import (
	"context"
	"log/slog"
	"runtime/debug"
	"time"
)

// watch is the observation of one operation, step or settlement, from Start to End.
type watch struct {
	observer Observer
	ctx      context.Context
	ev       *Event
	started  time.Time
}

// observe starts the observation of the operation, or of the settlement of a step of it, whose event is the operation's.
func (op *operation) observe(ctx context.Context, kind OpKind, step string) watch {
	w := op.watch(ctx, kind, step)
	op.ev = w.ev
	return w
}

// watch starts an observation in the operation, with an event of its own.
func (op *operation) watch(ctx context.Context, kind OpKind, step string) watch {
	w := watch{
		observer: op.set.Observer, ctx: ctx, started: time.Now(),
		ev: &Event{Op: Op{Kind: kind, KeyHash: op.id.Short(), Scope: op.key.Scope, Step: step}},
	}
	w.ctx = tellStart(ctx, w.observer, w.ev.Op)
	return w
}

// end ends it. An outcome of 0 is that of work that did not return: the event has it already.
func (w *watch) end(o Outcome, err error) {
	if o != 0 {
		w.ev.Outcome, w.ev.Err = o, err
	}
	w.ev.Duration = time.Since(w.started)
	tellEnd(w.ctx, w.observer, *w.ev)
}

// tellStart tells an observer of a start, and returns the context from there on.
func tellStart(ctx context.Context, o Observer, op Op) (from context.Context) {
	from = ctx
	defer contain(ctx, "observer", slog.String("key", op.KeyHash))
	if its := o.Start(ctx, op); its != nil {
		from = its
	}
	return from
}

func tellEnd(ctx context.Context, o Observer, ev Event) {
	defer contain(ctx, "observer", slog.String("key", ev.KeyHash))
	o.End(ctx, ev)
}

// contain is deferred around what the application is told by: a panic there is logged and ends. In the work of an operation it would end
// the attempt, behind it cost the caller the result, and in a goroutine of this package's end the process.
func contain(ctx context.Context, who string, about slog.Attr) {
	p := recover()
	if p == nil {
		return
	}
	defer func() { _ = recover() }() //nolint:errcheck // it may be the log that panics
	slog.LogAttrs(ctx, slog.LevelError, "everonce: the "+who+" panicked", about, slog.Any("panic", p), slog.String("stack", string(debug.Stack())))
}
