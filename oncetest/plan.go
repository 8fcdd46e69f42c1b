package oncetest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"

	"github.com/everonce/everonce"
)

// Op is a kind of call that can be made to fail.
type Op uint8

// The calls of a store, of a transaction, and of what is outside both.
const (
	OpClaim Op = iota + 1
	OpComplete
	OpRelease
	OpRenew
	OpSaveStep
	OpGet
	OpPurge
	OpList
	OpDeleteScope
	OpHealth
	OpCheckWrite
	OpIdentity
	OpBegin
	OpTxClaim
	OpTxComplete
	OpRecord
	OpTxGet
	OpTxRenew
	OpSavepoint
	OpRollbackTo
	OpReleaseSavepoint
	OpCommit
	OpRollback
	// OpEffect is a call of a [Gateway], or an effect inside [Faults.Effect].
	OpEffect

	opEnd
)

var opNames = [opEnd]string{
	OpClaim: "claim", OpComplete: "complete", OpRelease: "release", OpRenew: "renew", OpSaveStep: "save step", OpGet: "get",
	OpPurge: "purge", OpList: "list", OpDeleteScope: "delete scope", OpHealth: "health", OpCheckWrite: "check write", OpIdentity: "keep identity",
	OpBegin: "begin", OpTxClaim: "claim in transaction", OpTxComplete: "complete in transaction", OpRecord: "record",
	OpTxGet: "get in transaction", OpTxRenew: "renew in transaction", OpSavepoint: "savepoint", OpRollbackTo: "rollback to savepoint",
	OpReleaseSavepoint: "release savepoint", OpCommit: "commit", OpRollback: "rollback", OpEffect: "effect",
}

// String returns the call's name.
func (o Op) String() string {
	if o == 0 || o >= opEnd {
		return fmt.Sprintf("op(%d)", uint8(o))
	}
	return opNames[o]
}

// Fault is what happens to one call.
type Fault uint8

// The faults.
const (
	// Pass: nothing happens to it.
	Pass Fault = iota
	// FailBefore: it is not done, and the error does not say so.
	FailBefore
	// FailAfter: it is done, but its answer is lost. The error is the same as for FailBefore.
	FailAfter
	// HangBefore: it is not done, and returns when its context ends.
	HangBefore
	// HangAfter: it is done, and returns when its context ends.
	HangAfter
	// Unreached: it is not done, and the error proves it: for an effect it is marked with [everonce.NotDone]. For a
	// store's call it is the same as FailBefore.
	Unreached

	gone      // the process has died
	dieBefore // it dies before this call
	dieAfter  // it dies after it
)

var faultNames = [...]string{
	Pass: "ok", FailBefore: "failed before", FailAfter: "answer lost", HangBefore: "hung before", HangAfter: "hung after",
	Unreached: "not reached", gone: "process gone", dieBefore: "died before", dieAfter: "died after",
}

// String returns the fault's name.
func (f Fault) String() string {
	if int(f) >= len(faultNames) {
		return fmt.Sprintf("fault(%d)", uint8(f))
	}
	return faultNames[f]
}

// takesHold reports whether a call with that fault is done.
func (f Fault) takesHold() bool {
	return f == Pass || f == FailAfter || f == HangAfter || f == dieAfter
}

// Call is a call that is about to be made.
type Call struct {
	Op Op
	// N counts the calls of that Op, and Seq all calls, on one store or one gateway; both begin at 1.
	N, Seq int
	// Key names the effect; empty for a store's call.
	Key string
}

// Plan decides which calls fail, and how. It is called once before every call, concurrently.
type Plan func(Call) Fault

// At returns a plan in which the nth call of op has that fault.
func At(op Op, n int, fault Fault) Plan {
	return func(c Call) Fault {
		if c.Op == op && c.N == n {
			return fault
		}
		return Pass
	}
}

// AtCall returns a plan in which the call with that number, of any Op, has that fault. It serves to try every point
// where something can fail, one after the other.
func AtCall(seq int, fault Fault) Plan {
	return func(c Call) Fault {
		if c.Seq == seq {
			return fault
		}
		return Pass
	}
}

// Seeded returns a plan in which each call has a chance (0 to 1) to fail with one of the faults; without faults, with
// FailBefore or FailAfter. The same seed decides the same for the nth call of an Op, in whatever order the Ops are
// mixed.
func Seeded(seed uint64, chance float64, faults ...Fault) Plan {
	if len(faults) == 0 {
		faults = []Fault{FailBefore, FailAfter}
	}
	return func(c Call) Fault { return draw(seed, uint64(c.Op)<<32|uint64(c.N), chance, faults) } //nolint:gosec // N is positive
}

// draw decides one call, by the seed and the call's own number alone.
func draw(seed, number uint64, chance float64, faults []Fault) Fault {
	r := rand.New(rand.NewPCG(seed, number)) //nolint:gosec // chance is what is wanted, not secrecy
	if r.Float64() >= chance {
		return Pass
	}
	return faults[r.IntN(len(faults))]
}

// FirstOf returns a plan that asks plans in turn, and decides as the first that does not let a call pass.
func FirstOf(plans ...Plan) Plan {
	return func(c Call) Fault {
		for _, p := range plans {
			if f := p(c); f != Pass {
				return f
			}
		}
		return Pass
	}
}

// ErrInjected is wrapped by the error of every planned fault.
var ErrInjected = errors.New("oncetest: injected fault")

// InjectedError is the error of a call that was made to fail. It wraps [ErrInjected].
type InjectedError struct {
	Call  Call
	Fault Fault
	cause error
}

// Error names the call, but does not say whether it was done: its receiver cannot tell.
func (e *InjectedError) Error() string {
	what := "connection lost"
	switch e.Fault {
	case HangBefore, HangAfter:
		what = "no answer"
	case Unreached:
		what = "connection refused"
	case gone:
		what = "the process is gone"
	}
	return fmt.Sprintf("oncetest: %v: %s", e.Call.Op, what)
}

// Unwrap returns ErrInjected and, for a call that hung, what ended the wait.
func (e *InjectedError) Unwrap() []error {
	if e.cause == nil {
		return []error{ErrInjected}
	}
	return []error{ErrInjected, e.cause}
}

// suffer makes one call under its fault: what is done is done, and what is lost is lost.
func suffer[R any](ctx context.Context, c Call, f Fault, call func() (R, error)) (R, error) {
	var none R
	lost := &InjectedError{Call: c, Fault: f}
	switch f {
	case Pass:
		return call()
	case FailAfter, HangAfter:
		_, _ = call() //nolint:errcheck // whatever it was, the answer is lost
	case gone:
		lost.cause = everonce.ErrAttemptEnded // the engine of a dead process gives up
	}
	if f == HangBefore || f == HangAfter {
		<-ctx.Done()
		lost.cause = context.Cause(ctx)
	}
	if f == Unreached && c.Op == OpEffect {
		return none, everonce.NotDone(lost)
	}
	return none, lost
}
