package everonce

import (
	"context"
	"time"
)

// Observer is told of every operation, step and settlement: for logs, metrics and traces. It is used concurrently and
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

// Op is what an [Observer] is told at the start of a call.
type Op struct {
	// Kind is the kind of call: "do", "transact", "do_tx", "step", "step_tx" or "settle".
	Kind string
	// KeyHash is [RecordID.Short]; the observer never gets the key itself.
	KeyHash string
	Scope   Scope
	// Step is the step's name; empty for an operation.
	Step string
}

// Event is what an [Observer] is told at the end of a call.
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
