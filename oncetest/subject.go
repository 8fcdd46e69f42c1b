package oncetest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/everonce/everonce"
)

// Subject is what is tested: how to build it, what it promises, and which tests it is ready for.
type Subject struct {
	// New builds the system for one test, with no effects in it. Required. It hands what must be cleaned
	// up to tb.Cleanup. What it builds passes its store calls and its effects through f, as far as
	// Capabilities say so: see [Faults].
	New func(tb testing.TB, f *Faults) System
	// Mode is what the system promises. Required.
	Mode Mode
	// Capabilities say which of the optional tests run. Those that do not are listed by name.
	Capabilities Capabilities
	// Redelivery is the longest time after which a delivery may come again, the dwell in a dead-letter
	// queue included. Where it is set, a test delivers that late.
	Redelivery time.Duration
	// Lease is how long the claim of a process that died holds; Run waits for as long where it must, so
	// set a short one in tests, or Bubble, or System.Elapse. Default 30 s, as in [everonce.Options].
	Lease time.Duration
	// Bubble runs every test in a bubble of testing/synctest: the time is fake, and waiting costs
	// nothing. Set it where the system lives in this process alone, without network or files.
	Bubble bool
	// Operations is how many operations the chaos sends; the first of them 100 times. Fewer are faster
	// where time is real, and see less. Default 100.
	Operations int
	// Seed replays a run. Default: the environment's EVERONCE_SEED, else a new one.
	Seed uint64
}

// Mode is what a system promises: which counts of effects are right after a fault.
type Mode uint8

// The modes. For a system that is not built with everonce, choose by what it promises.
const (
	// Transactional: one effect, whatever fails. Effect and record commit together.
	Transactional Mode = iota + 1
	// Reexecute: what may have happened is run again, with the same downstream key. System.Effects
	// counts at a downstream that deduplicates: one effect.
	Reexecute
	// Refuse: at most one effect, and an unknown outcome only where a fault can have caused it.
	Refuse
	// Reconcile: what may have happened is asked about, and the answer is the truth: one effect.
	Reconcile
)

// String returns the mode's name.
func (m Mode) String() string {
	switch m {
	case Transactional:
		return "transactional"
	case Reexecute:
		return "reexecute"
	case Refuse:
		return "refuse"
	case Reconcile:
		return "reconcile"
	}
	return "none"
}

// Capabilities declare what a system can do, or lets the tests do to it. A test whose capabilities are
// declared runs; a capability that is declared and not there fails it.
type Capabilities struct {
	// Marks: a duplicate's answer is told from the first: [everonce.Replayed].
	Marks bool
	// Keys: an operation without a key is refused: [everonce.Invalid].
	Keys bool
	// Clients: keys are scoped per client (Operation.Client).
	Clients bool
	// Fingerprints: a key that comes again with another amount is refused: [everonce.Mismatch].
	Fingerprints bool
	// Rejections: an operation may be refused for good (Operation.Rejected): [everonce.Rejected].
	Rejections bool
	// Concurrency: System.Deliver may be called concurrently.
	Concurrency bool
	// EffectFaults: every effect passes through Faults.Effect, or a [Gateway] that has Faults.Plan.
	EffectFaults bool
	// StoreFaults: the store is wrapped by [FaultStore] or [FaultTxStore] with Faults.Plan.
	StoreFaults bool
	// Restarts: System.Restart is set.
	Restarts bool
	// SideEffects: System.SideEffects is set.
	SideEffects bool
	// Compensations: System.Compensate and System.Compensations are set.
	Compensations bool
	// Settlement: System.Settle is set. Only for the mode Refuse.
	Settlement bool
}

// System is one instance of what is tested, as functions. The contexts given to them end with the test.
type System struct {
	// Deliver delivers an operation once, as its sender does, and says what came back. Required. It does
	// not retry: that is what the tests do.
	Deliver func(ctx context.Context, op Operation) Answer
	// Effects counts, in the ledger itself and not from answers, how often the operation of that key and
	// client took effect, whatever its amount. Required. With Capabilities.EffectFaults it is the effect
	// that passes through Faults that counts; an operation of several effects has the others in SideEffects.
	Effects func(ctx context.Context, op Operation) (int, error)
	// Restart builds the system again over the same store and ledger, as a new process would: the old
	// one is not used any more. See Faults for what the old one can still do: nothing.
	Restart func(f *Faults) System
	// SideEffects lists what else the operation did: events, metrics, webhooks, mails.
	SideEffects func(ctx context.Context, op Operation) ([]SideEffect, error)
	// Compensate undoes the operation, once however many times it is called.
	Compensate func(ctx context.Context, op Operation) Answer
	// Compensations counts in the ledger how often the operation was undone.
	Compensations func(ctx context.Context, op Operation) (int, error)
	// Settle ends an unknown outcome by what somebody found out.
	Settle func(ctx context.Context, op Operation, happened bool) error
	// Elapse lets time pass for the store's clock. Default: it passes by itself.
	Elapse func(time.Duration)
}

// Operation is one intended effect.
type Operation struct {
	// Key is what the sender chose and repeats. It differs between runs, tests and operations.
	Key string
	// Amount is what is asked for: an amount, a quantity, or a number to put into the body. Positive.
	Amount int
	// Client is who sends it: another principal or tenant for another name.
	Client string
	// Rejected asks for an operation that the system refuses for good, whatever that is: an empty
	// account, a card that is declined. Only with Capabilities.Rejections.
	Rejected bool
}

// Answer is what came back from a delivery.
type Answer struct {
	// Outcome says what became of it. Required. Map what the system answers: an HTTP status, an
	// acknowledgement. Executed and Replayed are both "done" where Capabilities.Marks is not declared.
	Outcome everonce.Outcome
	// Result is what a duplicate must get again, compared by reflect.DeepEqual: a body, a receipt.
	Result any
	// RetryAfter is when the sender was told to come back; zero if it was not.
	RetryAfter time.Duration
	// Err is for the report of a failing test.
	Err error
}

// AnswerOf returns the answer of a call of everonce: Do, Transact or DoTx.
func AnswerOf[T any](res everonce.Result[T], err error) Answer {
	a := Answer{Outcome: res.Outcome, Err: err}
	if err == nil {
		a.Result = res.Value
	}
	var failure *everonce.PermanentError
	if a.Outcome == everonce.Rejected && errors.As(err, &failure) {
		a.Result = failure
	}
	var e *everonce.Error
	if errors.As(err, &e) {
		a.RetryAfter = e.RetryAfter
	}
	return a
}

// SideEffect is one effect of an operation beside the one that it is about.
type SideEffect struct {
	// Name tells it from the operation's others: "mail", "metric".
	Name string
	// Key is the downstream key that it went out with.
	Key string
	// Count is how often it took hold, counted on the other side.
	Count int
}

// isDone reports whether the answer says that the operation is over, for this sender and every other.
func (a Answer) isDone() bool {
	switch a.Outcome {
	case everonce.Executed, everonce.Replayed, everonce.Rejected, everonce.Expired, everonce.Elided:
		return true
	}
	return false
}

// isSuccess reports whether the answer says that the effect is there.
func (a Answer) isSuccess() bool { return a.isDone() && a.Outcome != everonce.Rejected }
