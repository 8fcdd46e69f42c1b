package everonce

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Policy says what happens to an operation whose attempt ended in the unknown: its process died, its lease expired, or
// its error does not tell whether the effect happened. There is no default: only the application knows what the other
// side does with a repeated call.
type Policy uint8

// The policies.
const (
	// Reexecute runs the work again, with the same downstream keys: at least once, and exactly once if the other side
	// deduplicates them.
	Reexecute Policy = iota + 1
	// Refuse never runs it again: at most once. Duplicates get [ErrOutcomeUnknown] until it is settled.
	Refuse
	// Reconcile asks whether the effect happened: see [WithReconcile].
	Reconcile
)

// String returns the policy's name.
func (p Policy) String() string {
	switch p {
	case Reexecute:
		return "reexecute"
	case Refuse:
		return "refuse"
	case Reconcile:
		return "reconcile"
	}
	return "none"
}

func (p Policy) validate() error {
	if p < Reexecute || p > Reconcile {
		return fmt.Errorf("%w: choose a policy for the unknown: Reexecute, Refuse or Reconcile", ErrInvalidArgument)
	}
	return nil
}

// Abandoned describes, to a reconciler, the attempt whose outcome is unknown.
type Abandoned struct {
	Key     Key
	Step    string // the step in question; empty for the operation
	Attempt int    // the latest attempt before this one; it, too, may only have asked
	Owner   string // the owner of that attempt
	// Since is when the operation, or the step, first began. The effect cannot be older.
	Since time.Time
	// LastError is the class of the error that ended it. Empty if it ended without an error, as after a crash, or
	// if the error is no longer known.
	LastError string
	// Downstream returns the downstream key that the attempt used under name.
	Downstream func(name string) string
}

// Verdict is a reconciler's answer: [Happened], [NotHappened] or [StillUnknown].
type Verdict[T any] struct {
	kind  verdictKind
	value T
}

type verdictKind uint8

const (
	verdictUnknown verdictKind = iota
	verdictHappened
	verdictNotHappened
)

// Happened says that the effect happened with the result v. The work does not run.
func Happened[T any](v T) Verdict[T] { return Verdict[T]{kind: verdictHappened, value: v} }

// NotHappened says that the effect did not happen; the work runs. That is safe only if the other side refuses a late
// arrival of the old call, or deduplicates the downstream key.
func NotHappened[T any]() Verdict[T] { return Verdict[T]{kind: verdictNotHappened} }

// StillUnknown says that it is not known yet. The operation stays abandoned, and the next delivery asks again.
func StillUnknown[T any]() Verdict[T] { return Verdict[T]{} }

// errStillUnknown is the cause of an error after a reconciler answered StillUnknown.
var errStillUnknown = errors.New("reconciled: still unknown")

type reconciler[T any] = func(context.Context, Abandoned) (Verdict[T], error)
