package everonce

import (
	"context"
	"time"
)

// CallOption changes one call of Do, Transact, DoTx, Step or StepTx. Where a call has no use for an
// option it is refused with [ErrInvalidArgument], not ignored. A [Fingerprint] is one.
type CallOption interface{ applyCall(*call) }

type callOption func(*call)

func (f callOption) applyCall(c *call) { f(c) }

// call is what the options of one call add up to.
type call struct {
	fingerprint    Fingerprint
	policy         Policy
	reconcile      any // a reconciler[T]
	wait           time.Duration
	waits          bool
	lease          time.Duration
	lifetime       Lifetime
	effectsInSteps bool
	summary        any // a func(T) []byte
	optimistic     bool
}

// WithPolicy sets the policy for the unknown of one operation or step.
func WithPolicy(p Policy) CallOption { return callOption(func(c *call) { c.policy = p }) }

// WithReconcile gives the question that the policy [Reconcile] asks about an abandoned attempt. T must
// be the result's type of the call. ask runs as an attempt of its own, with a renewed lease; if it
// fails or panics, the operation stays abandoned.
func WithReconcile[T any](ask func(ctx context.Context, a Abandoned) (Verdict[T], error)) CallOption {
	return callOption(func(c *call) { c.reconcile = ask })
}

// Wait makes a duplicate wait up to limit for a running attempt and replay its result, instead of
// being refused at once. It holds nothing in the store while it waits.
func Wait(limit time.Duration) CallOption {
	return callOption(func(c *call) { c.wait, c.waits = limit, true })
}

// WithLease sets the lease of one operation.
func WithLease(d time.Duration) CallOption { return callOption(func(c *call) { c.lease = d }) }

// WithLifetime sets how long one operation is kept and remembered.
func WithLifetime(l Lifetime) CallOption { return callOption(func(c *call) { c.lifetime = l }) }

// EffectsInSteps declares that all effects of the work are inside of its steps. Then an error of the
// work while no step is open proves that nothing was left half done: the attempt is released.
func EffectsInSteps() CallOption { return callOption(func(c *call) { c.effectsInSteps = true }) }

// WithSummary keeps a little of the result, at most [MaxSummaryLen] bytes, for duplicates that come
// when the result itself is gone or was elided. T must be the result's type of the call.
func WithSummary[T any](summarize func(T) []byte) CallOption {
	return callOption(func(c *call) { c.summary = summarize })
}

// Optimistic makes one Transact look first, work, and insert the record last: see Options.Optimistic.
func Optimistic() CallOption { return callOption(func(c *call) { c.optimistic = true }) }
