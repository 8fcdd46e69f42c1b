package sketches

import (
	"context"
	"errors"
	"slices"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/driver"
)

// SagaStep is an action and what takes it back. Undo must stand that its action never happened.
type SagaStep struct {
	Name string
	Do   func(ctx context.Context, a *everonce.Attempt) error
	Undo func(ctx context.Context, a *everonce.Attempt) error
}

// RunSaga is the orchestrator: one operation, each action and each compensation a step of it. What
// crashes is called again with the same key and goes forward again: steps that were done are answered
// from the record, and so is the refusal that turned it back.
func RunSaga(ctx context.Context, recv *everonce.Receiver, key everonce.Key, steps []SagaStep) (everonce.Result[string], error) {
	return everonce.Do(ctx, recv, key, func(ctx context.Context, a *everonce.Attempt) (string, error) {
		for i, s := range steps {
			_, err := everonce.Step(ctx, a, s.Name, func(ctx context.Context) (struct{}, error) {
				return struct{}{}, s.Do(ctx, a)
			})
			var refused *everonce.PermanentError
			switch {
			case errors.As(err, &refused):
				return "", undo(a, steps[:i], refused)
			case err != nil: // not final: the next attempt goes on here
				return "", err
			}
		}
		return "done", nil
	}, everonce.EffectsInSteps(), everonce.WithPolicy(everonce.Reexecute), everonce.WithLifetime(everonce.ForFinance()))
}

// undo compensates, backwards, what was begun: what did not end too, since it may have had its effect. It
// does not run in the caller's context, which may be what failed the step, and ends with the lease.
func undo(a *everonce.Attempt, steps []SagaStep, refused *everonce.PermanentError) error {
	ctx, begun := a.Detached(), a.Steps()
	for _, s := range slices.Backward(steps) {
		if !slices.ContainsFunc(begun, func(r driver.StepRecord) bool { return r.Name == s.Name && r.State != driver.StepNotDone }) {
			continue
		}
		if _, err := everonce.Step(ctx, a, "undo:"+s.Name, func(ctx context.Context) (struct{}, error) {
			return struct{}{}, s.Undo(ctx, a)
		}); err != nil {
			return err
		}
	}
	return everonce.Permanent("compensated", refused, nil)
}

// Participant is the other shape: actions and compensations arrive as requests, in any order, twice,
// or one without the other.
type Participant[Tx any] struct {
	Recv *everonce.TxReceiver[Tx]
	Act  func(ctx context.Context, tx Tx, branch string) error
	Undo func(ctx context.Context, tx Tx, branch string) error
}

const cancelled = "cancelled"

func branchKey(what, saga, branch string) everonce.Key {
	return everonce.Key{Scope: everonce.ScopeOf("saga", what), ID: saga + "/" + branch}
}

// Action runs once. If its compensation came first it is refused: it must not hang around done.
func (p Participant[Tx]) Action(ctx context.Context, saga, branch string) error {
	_, err := everonce.Transact(ctx, p.Recv, branchKey("act", saga, branch), func(ctx context.Context, tx Tx) (bool, error) {
		return true, p.Act(ctx, tx, branch)
	})
	return err
}

// Compensate runs once. In one transaction it takes the action's key: an action that never came finds
// it taken, and only one that happened is undone.
func (p Participant[Tx]) Compensate(ctx context.Context, saga, branch string) error {
	_, err := everonce.Transact(ctx, p.Recv, branchKey("undo", saga, branch), func(ctx context.Context, tx Tx) (bool, error) {
		action, err := everonce.DoTx(ctx, tx, p.Recv, branchKey("act", saga, branch), func(context.Context) (bool, error) {
			return false, everonce.Permanent(cancelled, nil, nil)
		})
		switch action.Outcome {
		case everonce.Replayed, everonce.Expired, everonce.Elided:
			return true, p.Undo(ctx, tx, branch)
		case everonce.Rejected: // null compensation, or an action that was refused: nothing to undo
			return false, nil
		}
		return false, err // it runs: come back later
	})
	return err
}

// CompensateGuarded is the same where the effect is elsewhere. An action in the unknown may have
// happened: it is settled as cancelled and undone all the same.
func CompensateGuarded(ctx context.Context, recv *everonce.Receiver, saga, branch string, undo func(context.Context, *everonce.Attempt) error) error {
	_, err := everonce.Do(ctx, recv, branchKey("undo", saga, branch), func(ctx context.Context, a *everonce.Attempt) (struct{}, error) {
		action, err := everonce.Do(ctx, recv, branchKey("act", saga, branch), func(context.Context, *everonce.Attempt) (struct{}, error) {
			return struct{}{}, everonce.Permanent(cancelled, nil, nil)
		}, everonce.WithPolicy(everonce.Reconcile), everonce.WithReconcile(func(context.Context, everonce.Abandoned) (everonce.Verdict[struct{}], error) {
			return everonce.Happened(struct{}{}), nil // as far as the compensation is concerned
		}))
		switch action.Outcome {
		case everonce.Executed, everonce.Replayed, everonce.Expired, everonce.Elided:
			return struct{}{}, undo(ctx, a)
		case everonce.Rejected:
			return struct{}{}, nil
		}
		return struct{}{}, everonce.NotDone(err)
	})
	return err
}
