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
	// New builds the system for one test, with no effects in it. It passes what must be cleaned up to tb.Cleanup. The
	// system passes its store calls and its effects through f, as far as Capabilities say so: see [Faults]. Required.
	New func(tb testing.TB, f *Faults) System
	// Mode is what the system promises. Required.
	Mode Mode
	// Capabilities say which of the optional tests run. The names of the others are logged.
	Capabilities Capabilities
	// Redelivery is the longest time after which a delivery may come again, including its stay in a dead-letter
	// queue. If it is set, a test delivers that late.
	Redelivery time.Duration
	// Lease is how long the claim of a process that died holds. Run waits that long where it must, so set a short one
	// in tests, or Bubble, or System.Elapse. Default 30 s, as in [everonce.Options].
	Lease time.Duration
	// Bubble runs every test in a bubble of testing/synctest: the time is fake, and waiting costs nothing. Set it if
	// the system is in this process alone, without network or files.
	Bubble bool
	// Operations is how many operations the chaos sends; the first of them 100 times. Fewer are faster if the time is
	// real, but find less. Default 100.
	Operations int
	// Seed replays a run. Default: the environment's EVERONCE_SEED, else a new one.
	Seed uint64
}

// Mode is what a system promises: which numbers of effects are right after a fault.
type Mode uint8

// The modes. For a system that is not built with everonce, choose by what it promises.
const (
	// Transactional: one effect, whatever fails. Effect and record commit together.
	Transactional Mode = iota + 1
	// Reexecute: what may have happened is run again, with the same downstream key. System.Effects counts at a
	// downstream system that deduplicates: one effect.
	Reexecute
	// Refuse: at most one effect, and an unknown outcome only if a fault can have caused it.
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

// Capabilities declare what a system can do, or lets the tests do to it. The tests whose capabilities are declared
// run, and fail if the system cannot do what they need. If a function of System is missing for one of them, no test
// runs: see [Run].
type Capabilities struct {
	// Marks: a duplicate's answer is marked as one: [everonce.Replayed].
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

// System is one instance of what is tested, as functions. Their contexts end with the test.
type System struct {
	// Deliver delivers an operation once, as its sender does, and returns what came back. It does not retry: the
	// tests do that. Required.
	Deliver func(ctx context.Context, op Operation) Answer
	// Effects counts, in the ledger itself and not from answers, how often the operation of that key and client took
	// effect, whatever its amount. With Capabilities.EffectFaults it counts the effect that passes through Faults; if
	// an operation has several effects, the others are in SideEffects. Required.
	Effects func(ctx context.Context, op Operation) (int, error)
	// Restart builds the system again over the same store and ledger, as a new process would: the old one is no
	// longer used. It can no longer do anything: see Faults.
	Restart func(f *Faults) System
	// SideEffects lists what else the operation did: events, metrics, webhooks, mails.
	SideEffects func(ctx context.Context, op Operation) ([]SideEffect, error)
	// Compensate undoes the operation, once however many times it is called.
	Compensate func(ctx context.Context, op Operation) Answer
	// Compensations counts in the ledger how often the operation was undone.
	Compensations func(ctx context.Context, op Operation) (int, error)
	// Settle ends an unknown outcome with what somebody found out.
	Settle func(ctx context.Context, op Operation, happened bool) error
	// Elapse lets time pass for the store's clock. Default: time passes as usual.
	Elapse func(time.Duration)
}

// Operation is one intended effect.
type Operation struct {
	// Key is the key that the sender chose and repeats. It differs between runs, tests and operations.
	Key string
	// Amount is what is asked for: an amount, a quantity, or a number to put into the body. It is positive.
	Amount int
	// Client is who sends it: each name is another principal or tenant.
	Client string
	// Rejected asks for an operation that the system refuses for good, for whatever reason: an empty account, a card
	// that is declined. Only with Capabilities.Rejections.
	Rejected bool
}

// Answer is what came back from a delivery.
type Answer struct {
	// Outcome says what became of the delivery. Map it from the system's answer: an HTTP status, an acknowledgement.
	// Executed and Replayed both mean "done" if Capabilities.Marks is not declared. Required.
	Outcome everonce.Outcome
	// Result is what a duplicate must get again, compared by reflect.DeepEqual: a body, a receipt.
	Result any
	// RetryAfter is how long the answer asked the sender to wait before it tries again; zero if it did not ask.
	RetryAfter time.Duration
	// Err is for the report of a failing test.
	Err error
}

// AnswerOf returns the answer that corresponds to a call of Do, Transact or DoTx.
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

// SideEffect is one effect of an operation besides its main one.
type SideEffect struct {
	// Name distinguishes it from the operation's other side effects: "mail", "metric".
	Name string
	// Key is the downstream key that it was sent with.
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

// isSuccess reports whether the answer says that the effect happened.
func (a Answer) isSuccess() bool { return a.isDone() && a.Outcome != everonce.Rejected }
