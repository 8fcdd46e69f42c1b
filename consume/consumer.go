package consume

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/driver"
)

// Consumer handles each message once. It is safe for concurrent use.
type Consumer struct {
	scope   everonce.Scope
	name    string
	life    everonce.Lifetime
	key     Key
	maxBody int
	compare fingerprinter
	retry   RetryPolicy
	drop    bool
	context func(context.Context, *Message) context.Context
	observe func(context.Context, *Message, Decision)

	id      func(everonce.Key) everonce.RecordID
	ready   func(context.Context) error               // the receiver's; nil without a receiver
	lookup  func(context.Context, everonce.Key) error // returns the recorded outcome; nil unless in guarded mode
	prepare func(*Message) (work, error)
	gather  func(n int) gathered // nil in guarded mode
	offsets any                  // an Offsets[Tx], or nil
}

// work handles one decoded message through the core.
type work func(ctx context.Context, key everonce.Key, sum everonce.Fingerprint) (everonce.Outcome, int, error)

// New returns a consumer for handlers whose effects are outside the store (guarded mode). The error wraps
// [everonce.ErrInvalidArgument].
func New[T any](recv *everonce.Receiver, spec Spec[T]) (*Consumer, error) {
	common, err := spec.common().withDefaults()
	switch {
	case err != nil:
		return nil, err
	case recv == nil || spec.Handle == nil:
		return nil, fmt.Errorf("%w: consume: the receiver or the handler is nil", everonce.ErrInvalidArgument)
	}
	policy := cmp.Or(spec.Policy, recv.Policy())
	switch {
	case policy == everonce.Reconcile && spec.Reconcile == nil:
		return nil, fmt.Errorf("%w: consume: Spec.Reconcile is required (the policy is Reconcile)", everonce.ErrInvalidArgument)
	case policy != everonce.Reconcile && spec.Reconcile != nil:
		return nil, fmt.Errorf("%w: consume: Spec.Reconcile is set, but the policy is %v (set the policy to Reconcile, or leave Spec.Reconcile out)", everonce.ErrInvalidArgument, policy)
	}
	about := []everonce.CallOption{everonce.WithCodec(nothing{}), everonce.WithPolicy(policy)}
	if spec.EffectsInSteps {
		about = append(about, everonce.EffectsInSteps())
	}
	options := append(slices.Clone(about), everonce.WithLifetime(common.Lifetime))
	if spec.Reconcile != nil {
		options = append(options, everonce.WithReconcile(spec.Reconcile))
	}
	call, err := recv.Prepare(options...)
	if err != nil {
		return nil, err
	}
	c, err := newConsumer(common)
	if err != nil {
		return nil, err
	}
	c.id, c.ready = recv.RecordID, recv.Ready
	c.lookup = func(ctx context.Context, key everonce.Key) error {
		_, err := everonce.Lookup[struct{}](ctx, recv, key, about...)
		return err
	}
	c.prepare = decodes(common.Decode, func(m *Message, v T) work {
		return func(ctx context.Context, key everonce.Key, sum everonce.Fingerprint) (everonce.Outcome, int, error) {
			res, err := everonce.Do(ctx, recv, key, func(ctx context.Context, _ *everonce.Attempt) (struct{}, error) {
				return struct{}{}, spec.Handle(ctx, m, v)
			}, call, sum)
			return res.Outcome, res.Attempt, err
		}
	})
	return c, nil
}

// NewTx returns a consumer for handlers whose effects are in the database of the receiver's store
// (transactional mode). The error wraps [everonce.ErrInvalidArgument].
func NewTx[T, Tx any](recv *everonce.TxReceiver[Tx], spec TxSpec[T, Tx]) (*Consumer, error) {
	common, err := spec.common().withDefaults()
	switch {
	case err != nil:
		return nil, err
	case recv == nil || spec.Handle == nil && spec.HandleAll == nil:
		return nil, fmt.Errorf("%w: consume: the receiver or the handler is nil", everonce.ErrInvalidArgument)
	}
	if spec.Handle == nil {
		spec.Handle = func(ctx context.Context, tx Tx, m *Message, v T) error {
			return spec.HandleAll(ctx, tx, []Received[T]{{m, v}})
		}
	}
	call, err := recv.Prepare(everonce.WithLifetime(common.Lifetime), everonce.WithCodec(nothing{}))
	if err != nil {
		return nil, err
	}
	c, err := newConsumer(common)
	if err != nil {
		return nil, err
	}
	c.id, c.ready = recv.RecordID, recv.Ready
	note := noNote[Tx]
	if spec.Offsets != nil {
		c.offsets, note = spec.Offsets, noting(spec.Offsets)
	}
	c.gather = func(n int) gathered {
		return &batchOf[T, Tx]{
			recv: recv, decode: common.Decode, handle: spec.Handle, handleAll: spec.HandleAll, note: note, call: call,
			items: make([]everonce.BatchItem, 0, n), received: make([]Received[T], 0, n),
		}
	}
	c.prepare = decodes(common.Decode, func(m *Message, v T) work {
		return func(ctx context.Context, key everonce.Key, sum everonce.Fingerprint) (everonce.Outcome, int, error) {
			res, err := everonce.Transact(ctx, recv, key, func(ctx context.Context, tx Tx) (struct{}, error) {
				err := spec.Handle(ctx, tx, m, v)
				if err == nil {
					err = note(ctx, tx, []*Message{m})
				}
				return struct{}{}, err
			}, call, sum)
			return res.Outcome, res.Attempt, err
		}
	})
	return c, nil
}

// decodes returns a function that decodes a message, before its key is claimed, and returns its work.
func decodes[T any](decode func(*Message) (T, error), to func(*Message, T) work) func(*Message) (work, error) {
	return func(m *Message) (work, error) {
		v, err := safely(decode, m)
		if err != nil {
			return nil, err
		}
		return to(m, v), nil
	}
}

func newConsumer[T any](c common[T]) (*Consumer, error) {
	compare, err := c.Compare.compile()
	return &Consumer{
		scope: everonce.ScopeOf(c.Consumer), name: c.Consumer, life: c.Lifetime, key: c.Key, maxBody: c.MaxBody, compare: compare,
		retry: c.Retry, drop: c.DropRejected, context: c.Context, observe: c.Observe,
	}, err
}

// Name returns the consumer's name.
func (c *Consumer) Name() string { return c.name }

// Remembers returns how long a handled message is remembered, or 0 if the consumer keeps no records. Adapters compare
// it with how long their broker keeps messages.
func (c *Consumer) Remembers() time.Duration { return c.life.Total() }

// Offsets returns [TxSpec.Offsets], or nil. Adapters call it.
func (c *Consumer) Offsets() any { return c.offsets }

// ObserveSetAside calls Observe for a message that its adapter has made a dead letter without a handler. Adapters call
// it.
func (c *Consumer) ObserveSetAside(ctx context.Context, m *Message, letter Death) {
	ctx = c.within(ctx, slog.Default(), m)
	c.callObserve(ctx, slog.Default(), m, Decision{Disposition: SetAside, KeyHash: letter.KeyHash, Err: errors.New(letter.Detail), Death: letter})
}

// KeyOf returns the key of a message, or an error that wraps [ErrNoKey].
func (c *Consumer) KeyOf(m *Message) (everonce.Key, error) {
	id, err := safely(c.key.Of, m)
	switch {
	case errors.Is(err, ErrNoKey):
		return everonce.Key{}, err
	case err != nil: // from the application's own Key
		return everonce.Key{}, fmt.Errorf("%w: %w", ErrNoKey, err)
	}
	key := everonce.Key{Scope: c.scope, ID: id}
	if err := key.Validate(); err != nil {
		return everonce.Key{}, fmt.Errorf("%w: %w", ErrNoKey, err)
	}
	return key, nil
}

// safely calls a function that reads a message, and returns an error if it panics: it would panic at the next delivery
// too.
func safely[T any](read func(*Message) (T, error), m *Message) (v T, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%w (%T)", errReader, p)
		}
	}()
	return read(m)
}

var (
	errReader       = errors.New("consume: the function that reads the message panicked")
	errReaderExited = errors.New("consume: the function that reads the message ended its goroutine")
)

// Handle handles one delivery and returns what to do with it at the broker. Adapters call it. It does not recover a
// panic of the handler; the attempt then ends as described at [everonce.Do]. If ctx ends before the handler is called,
// the decision is Hold.
func (c *Consumer) Handle(ctx context.Context, m *Message) Decision {
	ctx = c.within(ctx, slog.Default(), m)
	v := c.handle(ctx, m)
	c.callObserve(ctx, slog.Default(), m, v)
	return v
}

// within returns the context in which a message is handled.
func (c *Consumer) within(ctx context.Context, log *slog.Logger, m *Message) (in context.Context) {
	in = ctx
	if c.context == nil {
		return in
	}
	defer func() {
		if p := recover(); p != nil {
			log.ErrorContext(ctx, "consume: Context panicked", "consumer", c.name, "panic", p, "stack", string(debug.Stack()))
		}
	}()
	if its := c.context(ctx, m); its != nil {
		in = its
	}
	return in
}

// withinEach is within for the messages of a batch.
func (c *Consumer) withinEach(ctx context.Context, log *slog.Logger, ms []*Message) []context.Context {
	each := make([]context.Context, len(ms))
	for i, m := range ms {
		each[i] = c.within(ctx, log, m)
	}
	return each
}

// callObserve calls Observe in a new goroutine, which Observe may end. Its panic or exit does not change the decision.
func (c *Consumer) callObserve(ctx context.Context, log *slog.Logger, m *Message, v Decision) {
	if c.observe == nil {
		return
	}
	var calling sync.WaitGroup
	calling.Go(func() {
		defer func() {
			if p := recover(); p != nil {
				log.ErrorContext(ctx, "consume: Observe panicked", "consumer", c.name, "key", v.KeyHash, "panic", p, "stack", string(debug.Stack()))
			}
		}()
		c.observe(ctx, m, v)
	})
	calling.Wait()
}

func (c *Consumer) handle(ctx context.Context, m *Message) Decision {
	key, sum, hash, rejected := c.admit(m)
	if rejected != nil {
		return *rejected
	}
	work, err := c.prepare(m)
	if err != nil {
		return c.setAside(m, hash, 0, Undecodable, err)
	}
	outcome, attempt, err := work(ctx, key, sum)
	return c.dispose(ctx, m, hash, outcome, attempt, err)
}

// dispose decides by outcome, as documented at [Disposition].
func (c *Consumer) dispose(ctx context.Context, m *Message, hash string, o everonce.Outcome, attempt int, err error) Decision {
	if refusal := expiredRefusal(o, err); refusal != nil {
		o, err = everonce.Rejected, refusal
	}
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		if why := context.Cause(ctx); why != nil && !errors.Is(err, why) {
			err = fmt.Errorf("%w: %w", err, why) // says which deadline passed
		}
	}
	v := Decision{Outcome: o, KeyHash: hash, Err: err}
	switch o {
	case everonce.Executed, everonce.Replayed, everonce.Expired, everonce.Elided:
		v.Disposition, v.Err = Ack, nil
	case everonce.Rejected:
		if c.drop {
			v.Disposition = Ack
			return v
		}
		return c.setAside(m, hash, o, Rejected, err)
	case everonce.InProgress, everonce.LeaseLost:
		v.Disposition, v.After = Defer, retryAfter(err)
	case everonce.Failed:
		if !keeps(err) && (attempt != 0 || ctx.Err() == nil && !errors.Is(err, everonce.ErrStore)) {
			return c.retryDecision(m, v, Exhausted)
		}
		v.Disposition = Hold // the handler was not called
	case everonce.Mismatch:
		return c.setAside(m, hash, o, Mismatch, err)
	case everonce.Unknown:
		switch {
		case !mayResolve(err):
			return c.setAside(m, hash, o, Unknown, err)
		case c.gather != nil: // the answer to the commit was lost; the record will show the outcome
			v.Disposition = Hold
		default:
			return c.retryDecision(m, v, Unknown)
		}
	case everonce.StoreFailed:
		switch {
		case isValue(err): // for example from everonce keys settle: a message needs no result, and it was done
			v.Outcome, v.Disposition, v.Err = everonce.Replayed, Ack, nil
		case errors.Is(err, driver.ErrCorruptRecord) || errors.Is(err, everonce.ErrUndecodable):
			return c.setAside(m, hash, o, BadRecord, err)
		case errors.Is(err, driver.ErrNewerRecord): // during a rollout, a newer program can read it
			v.Disposition, v.After = Defer, c.retry.Max
		default:
			v.Disposition = Hold
		}
	default: // not recorded, or an error of the consumer and not of the message
		v.Disposition = Hold
	}
	return v
}

// retryDecision returns the decision on a failed message: Retry, or SetAside after the last retry.
func (c *Consumer) retryDecision(m *Message, v Decision, why Reason) Decision {
	if m.Retries >= c.retry.Limit {
		return c.setAside(m, v.KeyHash, v.Outcome, why, v.Err)
	}
	v.Disposition, v.After = Retry, c.retry.after(m.Retries)
	return v
}

// unfinishedDecision returns the decision on a message whose handler panicked or ended its goroutine. The record has
// the outcome that the policy chose.
func (c *Consumer) unfinishedDecision(ctx context.Context, m *Message, why error) Decision {
	outcome, hash := everonce.Failed, ""
	if key, err := c.KeyOf(m); err == nil {
		hash = c.id(key).Short()
		if c.lookup != nil {
			said, ok := errors.AsType[*everonce.Error](c.lookup(context.WithoutCancel(ctx), key))
			if ok && said.Outcome == everonce.Unknown {
				said.Cause = why // as for an error that the handler returns
				outcome, why = everonce.Unknown, said
			}
		}
	}
	return c.dispose(ctx, m, hash, outcome, 1, why)
}

// exitDecision returns the decision on a message whose handling ended the goroutine. It calls the functions that read
// the message again, in a new goroutine that they may end, to find out whether one of them did it: the message is then
// unreadable.
func (c *Consumer) exitDecision(ctx context.Context, m *Message) Decision {
	v := c.setAside(m, "", 0, NoKey, fmt.Errorf("%w: %w", ErrNoKey, errReaderExited))
	var asking sync.WaitGroup
	asking.Go(func() {
		key, err := c.KeyOf(m)
		if err == nil {
			v = c.setAside(m, c.id(key).Short(), 0, Undecodable, errReaderExited)
			c.prepare(m) //nolint:errcheck // only whether it returns matters
		}
		v = c.unfinishedDecision(ctx, m, errExited)
	})
	asking.Wait()
	return v
}

var (
	errPanicked = errors.New("consume: the handler panicked")
	errExited   = errors.New("consume: the handler ended its goroutine")
)

// setAside returns the decision to make a message a dead letter.
func (c *Consumer) setAside(m *Message, hash string, o everonce.Outcome, why Reason, err error) Decision {
	return Decision{Disposition: SetAside, Outcome: o, KeyHash: hash, Err: err, Death: Death{
		Reason: why, Detail: err.Error(), Consumer: c.name, Source: m.Source, KeyHash: hash,
		Attempts: m.Retries + 1, First: m.First, Last: time.Now(),
	}}
}

// mayResolve reports whether another delivery can resolve an unknown outcome before it is settled.
func mayResolve(err error) bool {
	e, ok := errors.AsType[*everonce.Error](err)
	return ok && e.RetryAfter > 0
}

// expiredRefusal returns the code of a rejection whose retention is over, as an error, or nil if o and err are not
// such a rejection. Unlike other expired operations, it was not done.
func expiredRefusal(o everonce.Outcome, err error) error {
	e, ok := errors.AsType[*everonce.Error](err)
	if o != everonce.Expired || !ok || e.Kind != driver.ResultFailure {
		return nil
	}
	return &everonce.PermanentError{Code: string(e.Summary), Truncated: true}
}

// isValue reports whether the recorded result that cannot be decoded is a value, and so the operation was done.
func isValue(err error) bool {
	e, ok := errors.AsType[*everonce.Error](err)
	return ok && errors.Is(err, everonce.ErrUndecodable) && e.Kind == driver.ResultValue
}

func retryAfter(err error) time.Duration {
	if e, ok := errors.AsType[*everonce.Error](err); ok && e.RetryAfter > 0 {
		return e.RetryAfter
	}
	return time.Second
}

// nothing is the codec of consumers, which record no result.
type nothing struct{}

func (nothing) Name() string                { return "nothing" }
func (nothing) Marshal(any) ([]byte, error) { return nil, nil }
func (nothing) Unmarshal([]byte, any) error { return nil }
