package saga

import (
	"context"
	"errors"
	"fmt"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/driver"
)

// Participant is a service that takes part in sagas of other services: it does actions and compensations in its own
// database, in whatever order and however often they arrive. It needs no additional table.
type Participant[Tx any] struct {
	receiver *everonce.TxReceiver[Tx]
	name     string
	call     everonce.CallOption
}

// ErrCancelled says that an action arrived after its compensation. It must not take effect any more.
var ErrCancelled = errors.New("saga: the action was compensated before it came")

// codeCancelled is the failure code that a compensation saves for an action that has not arrived.
const codeCancelled = "saga_cancelled"

// NewParticipant returns a participant that keeps its records in the receiver's store, under its own name. lifetime is
// how long they are kept after the last call of a branch; the zero Lifetime is [everonce.ForFinance]. The error wraps
// [everonce.ErrInvalidArgument].
func NewParticipant[Tx any](receiver *everonce.TxReceiver[Tx], name string, lifetime everonce.Lifetime) (*Participant[Tx], error) {
	if receiver == nil || name == "" {
		return nil, fmt.Errorf("saga: %w: the participant's receiver is nil, or its name is empty", everonce.ErrInvalidArgument)
	}
	if lifetime == (everonce.Lifetime{}) {
		lifetime = everonce.ForFinance()
	}
	call, err := receiver.Prepare(everonce.WithLifetime(lifetime))
	if err != nil {
		return nil, fmt.Errorf("saga: %w", err)
	}
	return &Participant[Tx]{receiver, name, call}, nil
}

func (p *Participant[Tx]) key(b Branch, what string) everonce.Key {
	return everonce.Key{Scope: everonce.ScopeOf("saga-participant", p.name, what), ID: b.id()}
}

// Action does the action of a branch once: the writes of act through tx commit with its record, and a repetition gets
// the same result, as in [everonce.Transact]. [ErrCancelled]: its compensation arrived first, and the action must not
// be done any more.
func Action[T, Tx any](ctx context.Context, p *Participant[Tx], b Branch, act func(ctx context.Context, tx Tx) (T, error)) (everonce.Result[T], error) {
	if err := b.check(); err != nil {
		return everonce.Result[T]{Outcome: everonce.Invalid}, err
	}
	res, err := everonce.Transact(ctx, p.receiver, p.key(b, "action"), act, p.call)
	var failure *everonce.PermanentError
	if errors.As(err, &failure) && failure.Code == codeCancelled {
		return res, fmt.Errorf("%w: %w", ErrCancelled, err)
	}
	return res, err
}

// Compensate reverts the action of a branch, once. If the action was done, undo is called, in a transaction with the
// record of the compensation. If it never arrived, or was refused, undo is not called; the same commit ensures that the
// action is refused if it arrives later. If the action runs at the moment, the error is [everonce.ErrInProgress]: send
// the compensation again.
func (p *Participant[Tx]) Compensate(ctx context.Context, b Branch, undo func(ctx context.Context, tx Tx) error) error {
	if err := b.check(); err != nil {
		return err
	}
	_, err := everonce.Transact(ctx, p.receiver, p.key(b, "compensation"), func(ctx context.Context, tx Tx) (bool, error) {
		action, err := everonce.DoTx(ctx, tx, p.receiver, p.key(b, "action"), func(context.Context) (struct{}, error) {
			return struct{}{}, everonce.Permanent(codeCancelled, ErrCancelled, nil)
		}, p.call, everonce.WithCodec(ignored{}))
		switch {
		case action.Outcome == everonce.Replayed, action.Outcome == everonce.Expired, action.Outcome == everonce.Elided, ofAnotherCodec(err):
			if err := undo(ctx, tx); err != nil { // never permanent: every repetition would get it
				return false, failing{err}
			}
			return true, nil
		case action.Outcome == everonce.Rejected: // it was refused, or has not arrived
			return false, nil
		}
		return false, err
	}, p.call)
	return err
}

// ofAnotherCodec reports whether an action was done and its result has a codec other than [ignored].
func ofAnotherCodec(err error) bool {
	var known *everonce.Error
	return errors.Is(err, everonce.ErrUndecodable) && errors.As(err, &known) && known.Kind == driver.ResultValue
}

// ignored is the codec with which a compensation reads its action's result, which it does not use.
type ignored struct{}

func (ignored) Name() string                { return "json" }
func (ignored) Marshal(any) ([]byte, error) { return []byte("null"), nil }
func (ignored) Unmarshal([]byte, any) error { return nil }
