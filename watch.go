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
	w.start()
	return w
}

func (w *watch) start() {
	defer w.contain()
	if ctx := w.observer.Start(w.ctx, w.ev.Op); ctx != nil {
		w.ctx = ctx
	}
}

// end ends it. An outcome of 0 is that of work that did not return: the event has it already.
func (w *watch) end(o Outcome, err error) {
	if o != 0 {
		w.ev.Outcome, w.ev.Err = o, err
	}
	w.ev.Duration = time.Since(w.started)
	defer w.contain()
	w.observer.End(w.ctx, *w.ev)
}

// contain ends a panic of the observer: in the work of an operation it would end the attempt, and behind it cost the caller
// the result.
func (w *watch) contain() {
	p := recover()
	if p == nil {
		return
	}
	defer func() { _ = recover() }() //nolint:errcheck // it may be the log that panics
	slog.ErrorContext(w.ctx, "everonce: the observer panicked", "key", w.ev.KeyHash, "panic", p, "stack", string(debug.Stack()))
}
