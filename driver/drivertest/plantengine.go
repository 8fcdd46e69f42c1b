package drivertest

import (
	"context"
	"fmt"
	"reflect"

	"github.com/everonce/everonce/driver"
)

// engineBugs are mistakes that an engine would make, as a store shows them.
func engineBugs() []bug {
	on := func(plant func(s driver.Store) driver.Store) func(h Harness) Harness {
		return func(h Harness) Harness {
			h.Store = plant(h.Store)
			return h
		}
	}
	return []bug{
		{
			name: "save before work", caught: "CrashPoints/Reexecute",
			plant: on(func(s driver.Store) driver.Store { return &saveBeforeWork{planted{s}} }),
		},
		{
			name: "completion under the request's context", caught: "Rule06/CompletionOutlivesTheCaller",
			plant: on(func(s driver.Store) driver.Store { return &requestContext{planted{s}} }),
		},
		{
			name: "release on an unmarked error under Refuse", caught: "CrashPoints/Refuse",
			plant: on(func(s driver.Store) driver.Store { return &releaseOnError{planted{s}} }),
		},
		{
			name: retryInTx, caught: "CrashPoints/Reexecute",
			pointless: func(h Harness, _ Capabilities) string {
				if _, ok := reflect.TypeOf(h.Store).MethodByName("Join"); ok {
					return "in RunTx"
				}
				return "the store has no transactions"
			},
		},
	}
}

// saveBeforeWork marks the operation as done when it begins, and adds the result after the work.
type saveBeforeWork struct{ planted }

func (s *saveBeforeWork) Claim(ctx context.Context, req driver.ClaimRequest) (driver.ClaimResult, error) {
	res, err := s.Store.Claim(ctx, req)
	if err != nil || res.Decision != driver.DecideClaimed {
		return res, err
	}
	done := driver.CompleteRequest{ID: req.ID, Token: res.Record.Token, Nonce: req.Nonce, Result: value("receipt"), Lifetime: req.Lifetime}
	if _, err := s.Complete(ctx, done); err != nil {
		return driver.ClaimResult{}, fmt.Errorf("save before work: %w", err)
	}
	return res, nil
}

// requestContext writes under the context of the request.
type requestContext struct{ planted }

func (s *requestContext) Complete(ctx context.Context, req driver.CompleteRequest) (driver.CompleteResult, error) {
	if err := requestOf(ctx).Err(); err != nil {
		return driver.CompleteResult{}, err
	}
	return s.Store.Complete(ctx, req)
}

// releaseOnError takes every error of the work for a proof that nothing happened.
type releaseOnError struct{ planted }

func (s *releaseOnError) Release(ctx context.Context, req driver.ReleaseRequest) (driver.ReleaseResult, error) {
	req.State = driver.StateReleased
	return s.Store.Release(ctx, req)
}
