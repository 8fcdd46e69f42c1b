package drivertest

import (
	"context"
	"errors"
	"sync"

	"github.com/everonce/everonce/driver"
)

// writeBugs are writes that are accepted and should not be, or that change more, or less, than they should.
func writeBugs() []bug {
	return []bug{
		{
			name: "a release by any nonce", caught: "Rule03/WrongTokenOrNonce",
			plant: both(func(s driver.Store) driver.Store { return &releaseByAnyNonce{planted{s}} }),
		},
		{
			name: "a step under an old token", caught: "Rule03/PausedOwnerWritesAfterATakeover",
			plant: both(func(s driver.Store) driver.Store { return &stepWithoutToken{planted{s}} }),
		},
		{
			name: "a renewal of what another has completed", caught: "Rule03/PausedOwnerWritesAfterATakeover",
			plant: both(func(s driver.Store) driver.Store { return &renewTheCompleted{planted{s}} }),
		},
		{
			name: "a repeated completion counts", caught: "Rule04/CompleteRepeatedWithAnotherResult",
			plant: both(func(s driver.Store) driver.Store { return &lastCompletion{planted: planted{s}} }),
		},
		{
			name: "a step's result cut at 64 KiB", caught: "Rule11/StepResultsByteForByte",
			plant: both(func(s driver.Store) driver.Store { return &shortSteps{planted{s}} }),
			pointless: func(_ Harness, c Capabilities) string {
				if c.MaxResult <= shortStep {
					return "the store takes no result of that size"
				}
				return ""
			},
		},
		{
			name: "steps lost by a takeover", caught: "Rule18/StepsSurviveTheirAttempt",
			plant: both(func(s driver.Store) driver.Store { return &takeoverWithoutSteps{planted{s}} }),
		},
		{
			name: "the running attempt's nonce is not returned", caught: "Rule04/ADuplicateGetsTheRunningAttemptsNonce",
			plant: both(func(s driver.Store) driver.Store { return &runningForAnybody{planted{s}} }),
		},
		{
			name: "lifetime moved by a replay", caught: "Rule04/DelayedClaimAfterCompletion",
			plant: both(func(s driver.Store) driver.Store {
				return &touched{planted: planted{s}, by: driver.DecideReplay, change: func(rec *driver.Record, req *driver.ClaimRequest) {
					rec.PurgeAt = rec.PurgeAt.Add(req.Lifetime.Total())
				}}
			}),
		},
		{
			name: "fingerprint overwritten by a claim that is not granted", caught: "Rule08/AnotherAlgIsNoMismatch",
			plant: both(func(s driver.Store) driver.Store {
				return &touched{planted: planted{s}, by: driver.DecideInProgress, change: func(rec *driver.Record, req *driver.ClaimRequest) {
					rec.Fingerprint = req.Fingerprint
				}}
			}),
		},
	}
}

// releaseByAnyNonce releases whatever attempt has the record.
type releaseByAnyNonce struct{ planted }

func (s *releaseByAnyNonce) Release(ctx context.Context, req driver.ReleaseRequest) (driver.ReleaseResult, error) {
	got, err := s.Get(ctx, driver.GetRequest{ID: req.ID})
	if err == nil && got.Record.Token == req.Token {
		req.Nonce = got.Record.Nonce
	}
	return s.Store.Release(ctx, req)
}

// stepWithoutToken writes a step to the record, whosever it is.
type stepWithoutToken struct{ planted }

func (s *stepWithoutToken) SaveStep(ctx context.Context, req driver.SaveStepRequest) (driver.SaveStepResult, error) {
	got, err := s.Get(ctx, driver.GetRequest{ID: req.ID})
	if err == nil && got.Found {
		req.Token, req.Nonce = got.Record.Token, got.Record.Nonce
	}
	return s.Store.SaveStep(ctx, req)
}

// renewTheCompleted renews a record that somebody else has settled.
type renewTheCompleted struct{ planted }

func (s *renewTheCompleted) Renew(ctx context.Context, req driver.RenewRequest) (driver.RenewResult, error) {
	res, err := s.Store.Renew(ctx, req)
	if errors.Is(err, driver.ErrLeaseLost) {
		if got, _ := s.Get(ctx, driver.GetRequest{ID: req.ID}); got.Record.State == driver.StateCompleted { //nolint:errcheck // nothing is found then
			return res, nil
		}
	}
	return res, err
}

// lastCompletion replays what came last of the completions that were accepted.
type lastCompletion struct {
	planted
	results sync.Map
}

func (s *lastCompletion) Complete(ctx context.Context, req driver.CompleteRequest) (driver.CompleteResult, error) {
	res, err := s.Store.Complete(ctx, req)
	if err == nil {
		s.results.Store(req.ID, req.Result)
	}
	return res, err
}

func (s *lastCompletion) Claim(ctx context.Context, req driver.ClaimRequest) (driver.ClaimResult, error) {
	res, err := s.Store.Claim(ctx, req)
	if last, ok := s.results.Load(req.ID); ok && res.Decision == driver.DecideReplay {
		res.Record.Result = last.(driver.SavedResult)
	}
	return res, err
}

// shortSteps keeps results of steps in a column that has room for a little.
type shortSteps struct{ planted }

const shortStep = 1 << 16

func (s *shortSteps) SaveStep(ctx context.Context, req driver.SaveStepRequest) (driver.SaveStepResult, error) {
	req.Step.Result.Data = req.Step.Result.Data[:min(len(req.Step.Result.Data), shortStep)]
	return s.Store.SaveStep(ctx, req)
}

// takeoverWithoutSteps returns no steps to an attempt that takes over.
type takeoverWithoutSteps struct{ planted }

func (s *takeoverWithoutSteps) Claim(ctx context.Context, req driver.ClaimRequest) (driver.ClaimResult, error) {
	res, err := s.Store.Claim(ctx, req)
	if res.Record.Previous.State == driver.StateAbandoned {
		res.Record.Steps = nil
	}
	return res, err
}

// runningForAnybody returns to the claim of a running attempt only that there is one.
type runningForAnybody struct{ planted }

func (s *runningForAnybody) Claim(ctx context.Context, req driver.ClaimRequest) (driver.ClaimResult, error) {
	res, err := s.Store.Claim(ctx, req)
	if res.Decision == driver.DecideInProgress {
		res.Record.Nonce = driver.Nonce{}
	}
	return res, err
}

// touched writes to a record though the claim is not granted.
type touched struct {
	planted
	by     driver.Decision
	change func(rec *driver.Record, req *driver.ClaimRequest)
	claims sync.Map
}

func (s *touched) Claim(ctx context.Context, req driver.ClaimRequest) (driver.ClaimResult, error) {
	res, err := s.Store.Claim(ctx, req)
	if res.Decision == s.by {
		s.claims.Store(req.ID, req)
	}
	return res, err
}

func (s *touched) Get(ctx context.Context, req driver.GetRequest) (driver.GetResult, error) {
	got, err := s.Store.Get(ctx, req)
	if claim, ok := s.claims.Load(req.ID); ok && got.Found {
		req := claim.(driver.ClaimRequest)
		s.change(&got.Record, &req)
	}
	return got, err
}
