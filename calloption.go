package everonce

import (
	"context"
	"fmt"
	"reflect"
	"strings"
	"time"

	"github.com/everonce/everonce/driver"
)

// CallOption changes one call. A call rejects options that it does not list with [ErrInvalidArgument]. A
// [Fingerprint] is a CallOption.
type CallOption interface{ applyCall(*call) }

type callOption func(*call)

func (f callOption) applyCall(c *call) { f(c) }

// call holds the combined options of one call.
type call struct {
	given          optionSet
	policy         Policy
	reconcile      any // a func(context.Context, Abandoned) (Verdict[T], error)
	wait           time.Duration
	lease          time.Duration
	lifetime       Lifetime
	effectsInSteps bool
	summary        any // a func(T) []byte
	optimistic     bool
	codec          Codec
	codecName      string
}

// optionSet is a set of options.
type optionSet uint16

const (
	optFingerprint optionSet = 1 << iota
	optPolicy
	optReconcile
	optWait
	optLease
	optLifetime
	optEffectsInSteps
	optSummary
	optOptimistic
	optCodec
	optUnobserved
	optPrepared

	doOptions       = optFingerprint | optPolicy | optReconcile | optWait | optLease | optLifetime | optEffectsInSteps | optSummary | optCodec | optUnobserved
	transactOptions = optFingerprint | optWait | optLifetime | optSummary | optOptimistic | optCodec | optUnobserved
	batchOptions    = optLifetime | optSummary | optCodec | optUnobserved
	doTxOptions     = optFingerprint | optLifetime | optSummary | optCodec | optUnobserved
	lookupOptions   = optFingerprint | optPolicy | optEffectsInSteps | optCodec
	stepOptions     = optPolicy | optReconcile | optCodec
	stepTxOptions   = optCodec
)

var optionNames = [...]string{
	"a Fingerprint", "WithPolicy", "WithReconcile", "WithWait", "WithLease", "WithLifetime", "EffectsInSteps", "WithSummary", "Optimistic", "WithCodec", "Unobserved",
	"a prepared option (it must be the first of an operation)",
}

func (s optionSet) String() string {
	var names []string
	for i, n := range optionNames {
		if s&(1<<i) != 0 {
			names = append(names, n)
		}
	}
	return strings.Join(names, ", ")
}

// within returns an error that names the options of the set that are not allowed.
func (s optionSet) within(allowed optionSet) error {
	if wrong := s &^ allowed; wrong != 0 {
		return fmt.Errorf("%w: %v cannot be used in this call", ErrInvalidArgument, wrong)
	}
	return nil
}

// WithPolicy sets the policy for the unknown of one operation or step.
func WithPolicy(p Policy) CallOption {
	return callOption(func(c *call) { c.policy = p; c.given |= optPolicy })
}

// WithReconcile sets the function that [Reconcile] calls to ask about an abandoned attempt. T is the call's result
// type. ask runs as an attempt with a lease; if it fails or panics, the operation stays abandoned.
func WithReconcile[T any](ask func(ctx context.Context, a Abandoned) (Verdict[T], error)) CallOption {
	return callOption(func(c *call) {
		c.given |= optReconcile
		if ask != nil {
			c.reconcile = ask
		}
	})
}

// WithWait makes a duplicate wait up to limit for a running attempt, and replay its result.
func WithWait(limit time.Duration) CallOption {
	return callOption(func(c *call) { c.wait = limit; c.given |= optWait })
}

// WithLease sets Options.Lease for one operation.
func WithLease(d time.Duration) CallOption {
	return callOption(func(c *call) { c.lease = d; c.given |= optLease })
}

// WithLifetime sets Options.Lifetime for one operation.
func WithLifetime(l Lifetime) CallOption {
	return callOption(func(c *call) { c.lifetime = l; c.given |= optLifetime })
}

// EffectsInSteps declares that all effects of the work are inside its steps. Then an error of the work while no step is
// open releases the attempt. After an attempt that died, even under [Refuse], another follows, and each open step is
// decided by its own policy.
func EffectsInSteps() CallOption {
	return callOption(func(c *call) { c.effectsInSteps = true; c.given |= optEffectsInSteps })
}

// WithSummary keeps a summary of the result, at most 4096 bytes, for duplicates that arrive when the result is gone or
// was elided. T must be the call's result type. A longer summary is dropped.
func WithSummary[T any](summarize func(T) []byte) CallOption {
	return callOption(func(c *call) {
		c.given |= optSummary
		if summarize != nil {
			c.summary = summarize
		}
	})
}

// Optimistic sets Options.Optimistic for one Transact.
func Optimistic() CallOption {
	return callOption(func(c *call) { c.optimistic = true; c.given |= optOptimistic })
}

// WithCodec sets the codec of one call's result, but not of the operation's steps: for adapters.
func WithCodec(c Codec) CallOption {
	return callOption(func(call *call) {
		call.given |= optCodec
		if call.codec = c; !isNil(c) {
			call.codecName = codecName(c)
		}
	})
}

// Unobserved hides one call from Observer and Log: for an adapter's own records.
func Unobserved() CallOption {
	return callOption(func(c *call) { c.given |= optUnobserved })
}

// callFor returns the options of one call on top of the receiver's defaults, or of prepared options, and the call's
// Fingerprint. If that is the only option, nothing is copied.
func (r *core) callFor(opts []CallOption, allowed optionSet) (*call, driver.Fingerprint, error) {
	base, opts, err := r.baseOf(opts)
	if err != nil {
		return nil, driver.Fingerprint{}, err
	}
	switch len(opts) {
	case 0:
		return base, driver.Fingerprint{}, base.given.within(allowed)
	case 1:
		if f, ok := fingerprintIn(opts[0]); ok {
			if err := (base.given | optFingerprint).within(allowed); err != nil {
				return nil, f, err
			}
			return base, f, validateFingerprint(f)
		}
	}
	c := new(call)
	*c = *base
	f, err := c.apply(opts, allowed)
	return c, f, err
}

func fingerprintIn(o CallOption) (f driver.Fingerprint, ok bool) {
	switch o := o.(type) {
	case Fingerprint:
		return driver.Fingerprint(o), true
	case *Fingerprint:
		if o != nil {
			return driver.Fingerprint(*o), true
		}
	}
	return f, false
}

// apply adds options to the call and checks the combination. It returns the Fingerprint among them.
func (c *call) apply(opts []CallOption, allowed optionSet) (f driver.Fingerprint, err error) {
	one := false
	for _, o := range opts {
		if noOption(o) {
			return f, fmt.Errorf("%w: a call option is nil", ErrInvalidArgument)
		}
		if its, ok := fingerprintIn(o); ok {
			if one { // the parts of the other would not be compared
				return f, fmt.Errorf("%w: a call takes one Fingerprint (give all parts to one FingerprintOf)", ErrInvalidArgument)
			}
			f, one = its, true
		}
		o.applyCall(c)
	}
	if err := c.given.within(allowed); err != nil {
		return f, err
	}
	if err := validateFingerprint(f); err != nil {
		return f, err
	}
	return f, c.validate()
}

// noOption is isNil without reflection for the known options.
func noOption(o CallOption) bool {
	switch o := o.(type) {
	case callOption:
		return o == nil
	case *Fingerprint:
		return o == nil
	case Fingerprint:
		return false
	}
	return isNil(o)
}

func (c *call) validate() error {
	if c.given&optPolicy != 0 {
		if err := c.policy.validate(); err != nil {
			return err
		}
	}
	if c.wait < 0 {
		return fmt.Errorf("%w: WithWait is negative (%v)", ErrInvalidArgument, c.wait)
	}
	if c.given&optLease != 0 {
		if err := validateLease(c.lease); err != nil {
			return err
		}
	}
	if c.given&optCodec != 0 {
		if isNil(c.codec) {
			return fmt.Errorf("%w: the codec of WithCodec is nil (%T)", ErrInvalidArgument, c.codec)
		}
		if err := validateCodec(c.codecName); err != nil {
			return err
		}
	}
	if c.given&optLifetime != 0 {
		return c.lifetime.Validate()
	}
	return nil
}

// observed reports whether the operation is observed.
func (op *operation) observed() bool {
	return op.set.Observer != nil && op.call.given&optUnobserved == 0
}

// reconcilerOf returns the call's reconciler, which must have the right type if the policy needs one.
func reconcilerOf[T any](c *call) (reconciler[T], error) {
	ask, ok := c.reconcile.(reconciler[T])
	if c.reconcile != nil && !ok {
		return nil, fmt.Errorf("%w: WithReconcile has the type %T, but the result is of the type %v", ErrInvalidArgument, c.reconcile, reflect.TypeFor[T]())
	}
	if c.policy == Reconcile && ask == nil {
		return nil, fmt.Errorf("%w: the policy Reconcile needs WithReconcile", ErrInvalidArgument)
	}
	return ask, nil
}

func summaryOf[T any](c *call) (func(T) []byte, error) {
	f, ok := c.summary.(func(T) []byte)
	if c.summary != nil && !ok {
		return nil, fmt.Errorf("%w: WithSummary has the type %T, but the result is of the type %v", ErrInvalidArgument, c.summary, reflect.TypeFor[T]())
	}
	return f, nil
}

// Prepare checks options once and combines them into one, for calls that share them. It includes the receiver's
// defaults, so it must be the first option of a call on this receiver. It rejects a Fingerprint. The error wraps
// [ErrInvalidArgument].
func (r *Receiver) Prepare(opts ...CallOption) (CallOption, error) {
	return r.prepareCall(opts, doOptions)
}

// Prepare is [Receiver.Prepare].
func (t *TxReceiver[Tx]) Prepare(opts ...CallOption) (CallOption, error) {
	return t.prepareCall(opts, transactOptions|doTxOptions)
}

func (r *core) prepareCall(opts []CallOption, allowed optionSet) (CallOption, error) {
	p := &prepared{by: r, call: r.defaults}
	if _, err := p.call.apply(opts, allowed&^optFingerprint); err != nil {
		return nil, err
	}
	return p, nil
}

// prepared holds combined options.
type prepared struct {
	by   *core
	call call
}

func (*prepared) applyCall(c *call) { c.given |= optPrepared }

// baseOf returns the call that the options apply to, and the options to apply.
func (r *core) baseOf(opts []CallOption) (*call, []CallOption, error) {
	if len(opts) == 0 {
		return &r.defaults, nil, nil
	}
	p, ok := opts[0].(*prepared)
	switch {
	case !ok:
		return &r.defaults, opts, nil
	case p.by != r:
		return nil, nil, fmt.Errorf("%w: the options were prepared by another receiver", ErrInvalidArgument)
	}
	return &p.call, opts[1:], nil
}
