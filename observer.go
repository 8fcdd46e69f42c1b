package everonce

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/everonce/everonce/internal/panics"
)

// Observer observes every operation, step and settlement. It is used concurrently and must not block; its panics
// are logged. It sees neither [Lookup] nor [TxReceiver.InTx], nor calls that fail because of their key, arguments
// or options.
//
// To count effects, count Executed only, and only if Observation.Provisional is not set.
type Observer interface {
	// Start is called before the first store call. The returned context becomes the parent of the work's, so it can
	// carry a span.
	Start(ctx context.Context, op Op) context.Context
	// End is called once for every Start, with the context that Start returned.
	End(ctx context.Context, ev Observation)
}

// Tracer is an optional interface of an [Observer] that traces.
type Tracer interface {
	// Trace returns the place in a trace of the context that Start returned, as text of at most 64 bytes without
	// blanks, or nothing. A claim writes it into [driver.Record.Owner], behind Options.Owner and a blank, if there
	// is room. A later call that finds the record reports it in Observation.Met.
	Trace(ctx context.Context) string
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
	// Kind is "do", "transact", "do_tx", "step", "step_tx" or "settle".
	Kind string
	// KeyHash is [RecordID.Short] of the key.
	KeyHash string
	Scope   Scope
	// Step is the step's name; empty for an operation.
	Step string
}

// Observation describes a call at its end.
type Observation struct {
	Op
	// Outcome and Err are what the caller gets. A settlement is Executed if the effect happened, Rejected if it was
	// refused for good, and Failed if it did not happen.
	Outcome Outcome
	Attempt int // 0 if none ran
	// Fingerprint is the call's; zero if it has none. Steps and settlements have none.
	Fingerprint Fingerprint
	// Duration is the time from Start to End.
	Duration time.Duration
	// Waited is the part spent waiting for another attempt.
	Waited      time.Duration
	Err         error
	Provisional bool // see [Result.Provisional]
	// Reconciled: see [Result.Reconciled].
	Reconciled bool
	// LeaseLost: the attempt lost its record. Outcome is then the record's, if it has one.
	LeaseLost bool
	// Elided is why the result was not kept: "size", "encoding", "store" or empty.
	Elided string
	// AlgChanged: the record that answered has a fingerprint of another Alg, which was not compared. Not set for a new
	// attempt, whose fingerprint replaces the record's.
	AlgChanged bool
	// UnusedSteps are the recorded steps that this attempt did not ask for.
	UnusedSteps []string
	// Retries counts repeated store calls and transactions.
	Retries int
	// RenewFailures counts renewals of the lease that failed.
	RenewFailures int
	// Met is the text that [Tracer] wrote for the attempt whose record this call found or took over: the last word
	// of the record's owner. Empty if it wrote none.
	Met string
	// Since is how long ago the operation had been done when this call found its record, by the store's clock. A
	// retention must exceed it. 0 if it had not been done, or if that is not known.
	Since time.Duration
}

// observation is one observed operation, step or settlement, from Start to End.
type observation struct {
	observer Observer
	ctx      context.Context
	ev       *Observation
	started  time.Time
}

// observe starts the observation of the operation, or of a settlement. The operation's event is the observation's.
func (op *operation) observe(ctx context.Context, kind string, step string) observation {
	o := op.newObservation(ctx, kind, step)
	o.ev.Fingerprint = Fingerprint(op.fingerprint)
	op.ev = o.ev
	return o
}

// newObservation starts an observation in the operation, with a separate event.
func (op *operation) newObservation(ctx context.Context, kind string, step string) observation {
	o := observation{
		observer: op.set.Observer, ctx: ctx, started: time.Now(),
		ev: &Observation{Op: Op{Kind: kind, KeyHash: op.id.Short(), Scope: op.key.Scope, Step: step}},
	}
	o.ctx = callStart(ctx, o.observer, o.ev.Op)
	return o
}

// owner returns the owner that a claim writes.
func (op *operation) owner(ctx context.Context) string {
	trace := op.trace
	if trace == "" {
		trace = op.traceIn(ctx)
	}
	if trace == "" || strings.ContainsAny(trace, " \n") || len(op.set.Owner)+1+len(trace) > maxOwnerLen {
		return op.set.Owner
	}
	return op.set.Owner + " " + trace
}

// traceIn returns [Tracer]'s text for the context that the observer's Start returned.
func (op *operation) traceIn(ctx context.Context) (trace string) {
	t, ok := op.set.Observer.(Tracer)
	if !ok || op.ev == nil {
		return ""
	}
	defer panics.Log(ctx, "observer", slog.String("key", op.ev.KeyHash))
	return t.Trace(ctx)
}

// foundRecord notes, for the observer, the trace of an existing record's owner, and when the operation was
// completed, if it was.
func (op *operation) foundRecord(owner string, completed, now time.Time) {
	if op.ev == nil {
		return
	}
	if i := strings.LastIndexByte(owner, ' '); i >= 0 {
		op.ev.Met = owner[i+1:]
	}
	if !completed.IsZero() {
		op.ev.Since = max(now.Sub(completed), 0)
	}
}

// end ends the observation. An outcome of 0 means that the work did not return; the event then has its outcome
// already.
func (o *observation) end(outcome Outcome, err error) {
	if outcome != 0 {
		o.ev.Outcome, o.ev.Err = outcome, err
	}
	o.ev.Duration = time.Since(o.started)
	tellEnd(o.ctx, o.observer, *o.ev)
}

// callStart calls an observer's Start, and returns its context.
func callStart(ctx context.Context, o Observer, op Op) (from context.Context) {
	from = ctx
	defer panics.Log(ctx, "observer", slog.String("key", op.KeyHash))
	if its := o.Start(ctx, op); its != nil {
		from = its
	}
	return from
}

func tellEnd(ctx context.Context, o Observer, ev Observation) {
	defer panics.Log(ctx, "observer", slog.String("key", ev.KeyHash))
	o.End(ctx, ev)
}

// JoinObservers returns one observer that calls all: their Starts in order, each with the context that the one before
// returned, and their Ends in reverse order, each with its own Start's context. Nil ones are left out; if none is left,
// the result is nil.
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

// Trace returns the text of the first observer that is a [Tracer].
func (j *joinedObservers) Trace(ctx context.Context) (trace string) {
	for _, o := range j.each {
		if t, ok := o.(Tracer); ok && trace == "" {
			trace = t.Trace(ctx)
		}
	}
	return trace
}

func (j *joinedObservers) Start(ctx context.Context, op Op) context.Context {
	started := &startedContext{Context: ctx, by: j, each: make([]context.Context, len(j.each))}
	for i, o := range j.each {
		started.Context = callStart(started.Context, o, op)
		started.each[i] = started.Context
	}
	return started
}

func (j *joinedObservers) End(ctx context.Context, ev Observation) {
	started, ok := ctx.Value(startedKey{j}).(*startedContext)
	for i, o := range slices.Backward(j.each) {
		if ok {
			ctx = started.each[i]
		}
		tellEnd(ctx, o, ev)
	}
}

// startedContext is the context that the Start of joined observers returns: the last observer's, with the contexts
// of all.
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
