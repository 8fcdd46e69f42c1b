package everonce

import (
	"context"
	"log/slog"
	"slices"
	"time"

	"github.com/everonce/everonce/internal/panics"
)

// Observer observes every operation, step and settlement: for logs, metrics and traces. It is used concurrently and
// must not block. If it panics, that is logged ([slog.Default]) and changes nothing else. A nil observer costs
// nothing. It is not told of [Lookup], of [TxReceiver.InTx], or of a call that is refused because of its key,
// arguments or options before it becomes an operation.
//
// To count effects, count the outcome Executed only, and only if Event.Provisional is not set.
type Observer interface {
	// Start is called before the first store call. The context that it returns becomes the parent of the work's
	// context, so it can carry a span.
	Start(ctx context.Context, op Op) context.Context
	// End is called once for every Start, with the context that Start returned.
	End(ctx context.Context, ev Event)
}

// The kinds of calls.
const (
	opDo       = "do"
	opTransact = "transact"
	opDoTx     = "do_tx"
	opStep     = "step"
	opStepTx   = "step_tx"
	opSettle   = "settle"
)

// Op describes a call at its start.
type Op struct {
	// Kind is the kind of call: "do", "transact", "do_tx", "step", "step_tx" or "settle".
	Kind string
	// KeyHash is [RecordID.Short]; the observer never gets the key itself.
	KeyHash string
	Scope   Scope
	// Step is the step's name; empty for an operation.
	Step string
}

// Event describes a call at its end.
type Event struct {
	Op
	// Outcome is what the caller gets. For a settlement it is Executed only if that says that the effect happened,
	// Rejected if it says that the operation was refused for good, and Failed if it says that it was not done.
	Outcome Outcome
	Attempt int // 0 if none ran
	// Duration is the time from Start to End, including waiting and the work.
	Duration time.Duration
	// Waited is the part of it that was spent waiting for another attempt.
	Waited time.Duration
	// Err is what the caller gets.
	Err         error
	Provisional bool // see [Result.Provisional]
	// Reconciled says that asking settled the unknown of an earlier attempt; the work did not run.
	Reconciled bool
	// LeaseLost says that the attempt lost its record. The outcome is then what the record says, if it says anything.
	LeaseLost bool
	// Elided says why the result was not kept: "size", "encoding" or "store"; otherwise it is empty.
	Elided string
	// AlgChanged says that the fingerprint of the record that answered has another Alg, and so was not compared. It
	// is not set for a further attempt, whose own fingerprint has taken the place of the record's.
	AlgChanged bool
	// UnusedSteps are the recorded steps that this attempt did not ask for.
	UnusedSteps []string
	// Retries counts repeated store calls and transactions.
	Retries int
	// RenewFailures counts renewals of the lease that failed.
	RenewFailures int
}

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

// newObservation starts one in the operation, with its own event.
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

// JoinObservers returns one observer that tells all of the given ones: of logs and of metrics, say. Their Starts are called in order, each
// with the context that the one before it returned; their Ends in reverse order, each with the context that its own Start returned. If one
// panics, the others are called all the same. A nil one is left out; if no other is left, the result is nil.
func JoinObservers(observers ...Observer) Observer {
	told := slices.DeleteFunc(slices.Clone(observers), func(o Observer) bool { return isNil(o) })
	switch len(told) {
	case 0:
		return nil
	case 1:
		return told[0]
	}
	return &joinedObservers{told}
}

type joinedObservers struct{ each []Observer }

func (j *joinedObservers) Start(ctx context.Context, op Op) context.Context {
	started := &startedContext{Context: ctx, by: j, each: make([]context.Context, len(j.each))}
	for i, o := range j.each {
		started.Context = tellStart(started.Context, o, op)
		started.each[i] = started.Context
	}
	return started
}

func (j *joinedObservers) End(ctx context.Context, ev Event) {
	started, ok := ctx.Value(startedKey{j}).(*startedContext)
	for i, o := range slices.Backward(j.each) {
		if ok {
			ctx = started.each[i]
		}
		tellEnd(ctx, o, ev)
	}
}

// startedContext is what the Start of joined observers returns: the context of the last of them, which knows those of all.
type startedContext struct {
	context.Context
	by   *joinedObservers
	each []context.Context
}

type startedKey struct{ by *joinedObservers }

func (c *startedContext) Value(key any) any {
	if key == (startedKey{c.by}) {
		return c
	}
	return c.Context.Value(key)
}
