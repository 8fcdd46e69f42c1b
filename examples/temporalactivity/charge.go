// Package temporalactivity is a Temporal activity that charges once, however often Temporal runs it.
package temporalactivity

import (
	"context"
	"errors"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/temporal"

	"github.com/everonce/everonce"
)

// Order is the activity's argument.
type Order struct {
	ID    string
	Cents int64
}

// Receipt is its result.
type Receipt struct {
	Number string
}

// Gateway is where the effect is: outside of every database of ours.
type Gateway interface {
	// Charge takes the money. Calls with the same key are the same charge, where the gateway can tell.
	Charge(ctx context.Context, o Order, key string) (Receipt, error)
}

// Activities are what the worker registers.
type Activities struct {
	Receiver *everonce.Receiver
	Gateway  Gateway
}

// Charge is the activity.
func (a *Activities) Charge(ctx context.Context, o Order) (Receipt, error) {
	res, err := everonce.Do(ctx, a.Receiver, activityKey(ctx), func(ctx context.Context, at *everonce.Attempt) (Receipt, error) {
		return a.Gateway.Charge(ctx, o, at.DownstreamKey("charge"))
	}, everonce.FingerprintOf(o.ID, o.Cents))
	if errors.Is(err, everonce.ErrNotRecorded) {
		return res.Value, nil // the charge is made, and Temporal records it
	}
	return res.Value, forTemporal(res.Outcome, err)
}

// activityKey names the operation: this activity of this run of this workflow. Temporal repeats all
// three in every attempt.
func activityKey(ctx context.Context) everonce.Key {
	info := activity.GetInfo(ctx)
	run := info.WorkflowExecution
	return everonce.Key{
		Scope: everonce.ScopeOf(info.Namespace, info.ActivityType.Name),
		ID:    run.ID + "/" + run.RunID + "/" + info.ActivityID,
	}
}

// forTemporal says whether Temporal should try again, and when.
func forTemporal(o everonce.Outcome, err error) error {
	if err == nil {
		return nil
	}
	options := temporal.ApplicationErrorOptions{Cause: err}
	switch o {
	case everonce.Failed, everonce.StoreFailed, everonce.LeaseLost:
		return err // by the retry policy
	default: // rejected, mismatch, expired, …: without a RetryAfter another try gets the same answer
		e, ok := errors.AsType[*everonce.Error](err)
		if options.NonRetryable = !ok || e.RetryAfter == 0; ok {
			options.NextRetryDelay = e.RetryAfter
		}
	}
	return temporal.NewApplicationErrorWithOptions(err.Error(), o.String(), options)
}
