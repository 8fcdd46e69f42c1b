package everonce

import (
	"context"
	"time"
)

// Observer is told of every operation, step and settlement: for logs, metrics and traces. It is used
// concurrently and must not block. A panic of it is logged ([slog.Default]), and changes nothing. A nil observer costs
// nothing. It is not told of [Lookup], of [TxReceiver.InTx], nor of a call that is refused for its key, its arguments or its
// options before it is an operation.
//
// Count effects on outcome Executed only, and not where Event.Provisional is set.
type Observer interface {
	// Start is called before the first store call. The context that it returns is the parent of the
	// work's, so that a span can be.
	Start(ctx context.Context, op Op) context.Context
	// End is called once for every Start, with that Start's context.
	End(ctx context.Context, ev Event)
}

// OpKind says what is observed.
type OpKind uint8

// The kinds.
const (
	OpDo OpKind = iota + 1
	OpTransact
	OpDoTx
	OpStep
	OpStepTx
	OpSettle
)

// String returns the kind's name.
func (k OpKind) String() string {
	switch k {
	case OpDo:
		return "do"
	case OpTransact:
		return "transact"
	case OpDoTx:
		return "do_tx"
	case OpStep:
		return "step"
	case OpStepTx:
		return "step_tx"
	case OpSettle:
		return "settle"
	}
	return "none"
}

// Op is what begins.
type Op struct {
	Kind OpKind
	// KeyHash is [RecordID.Short]; the key itself is never told.
	KeyHash string
	Scope   Scope
	// Step is the step's name; empty for an operation.
	Step string
}

// Event is how it ended.
type Event struct {
	Op
	// Outcome is what the caller gets. Of a settlement it is Executed only where that says that the effect
	// happened, Rejected where it says that it was refused for good, and Failed where it was not done.
	Outcome Outcome
	Attempt int // 0 where none ran
	// Duration is from Start to End, waiting and the work included.
	Duration time.Duration
	// Waited is how much of it was spent waiting for another attempt.
	Waited time.Duration
	// Err is what the caller gets.
	Err error
	// Provisional: the result is in the caller's transaction, which has not committed.
	Provisional bool
	// Reconciled: the attempt's unknown was settled by asking; the work did not run.
	Reconciled bool
	// LeaseLost: the attempt lost its record; the outcome is what the record says, if it says something.
	LeaseLost bool
	// Elided says why the result was not kept: "size", "encoding", "store"; else empty.
	Elided string
	// AlgChanged: the fingerprint of the record that answered is of another Alg, so it was not compared. A further attempt is not
	// told of it: it has taken the record's place.
	AlgChanged bool
	// UnusedSteps are recorded steps that this attempt did not ask for.
	UnusedSteps []string
	// Retries counts repeated store calls and transactions.
	Retries int
	// RenewFailures counts renewals of the lease that failed.
	RenewFailures int
}
