package drivertest

import (
	"context"
	"errors"
	"time"

	"github.com/everonce/everonce/driver"
)

// contextChecks test calls whose context ends, and errors in general (rule 7).
func contextChecks() []check {
	return []check{
		{name: "Rule07/ACancelledClaimIsNoDuplicate", run: func(e *env) {
			for range 20 {
				req := claimReq(e.key())
				res, err := e.s.Claim(ended(e.ctx), req)
				switch {
				case err != nil:
					e.failure("Claim", err)
				case res.Decision != driver.DecideClaimed:
					e.Errorf("a cancelled claim of a new key is answered %v, want an error, or claimed", res.Decision)
				}
				// Whatever became of it, its repetition is granted, and its retraction ends it.
				e.claimed(req)
				e.release(byNonce(req))
				e.claimFails(req, driver.ErrAttemptEnded)
			}
		}},
		{name: "Rule07/ACancelledCallIsDoneOrNot", run: checkCancelled},
		{name: "Rule07/ACancelledPowerIsDoneOrNot", run: checkCancelledPowers},
		{name: "Rule07/ACallEndsWithItsContext", run: func(e *env) {
			a := e.claimed(claimReq(e.key()))
			deadline := time.Now().Add(20 * time.Millisecond)
			ctx, cancel := context.WithDeadline(e.ctx, deadline)
			defer cancel()
			for i := 0; time.Now().Before(deadline.Add(30 * time.Millisecond)); i++ {
				if _, err := e.s.Claim(ctx, a.taking(driver.TakeNone)); err != nil {
					e.failure("Claim", err)
				}
				if _, err := e.s.Renew(ctx, a.renewal()); err != nil {
					e.failure("Renew", err)
				}
			}
			if late := time.Since(deadline); late > time.Minute {
				e.Errorf("calls went on for %v after their context's end", late)
			}
			a.completed("done")
		}},
	}
}

func ended(ctx context.Context) context.Context {
	ctx, cancel := context.WithCancel(ctx)
	cancel()
	return ctx
}

// failure checks that an error which is not a refusal does not look like one.
func (e *env) failure(what string, err error) {
	e.Helper()
	for _, refusal := range []error{
		driver.ErrAttemptEnded, driver.ErrLeaseLost, driver.ErrConflict, driver.ErrTooLarge, driver.ErrStoreFull,
		driver.ErrNewerRecord, driver.ErrCorruptRecord, driver.ErrIdentity, driver.ErrSchema,
	} {
		if errors.Is(err, refusal) {
			e.Errorf("%s, cancelled: %v; that is a refusal, not a failure", what, err)
		}
	}
}

// checkCancelled cancels every call: it fails or it is done, and the same call again is accepted.
func checkCancelled(e *env) {
	ctx := ended(e.ctx)
	a := e.claimed(claimReq(e.key()))
	step := a.stepping("mail", driver.StepDone)
	if _, err := e.s.SaveStep(ctx, step); err != nil {
		e.failure("SaveStep", err)
	}
	e.is("SaveStep, again", a.step(step), nil)
	if _, err := e.s.Renew(ctx, a.renewal()); err != nil {
		e.failure("Renew", err)
	}
	e.is("Renew, again", a.renew(a.renewal()), nil)
	if _, err := e.s.Get(ctx, driver.GetRequest{ID: a.req.ID}); err != nil {
		e.failure("Get", err)
	}
	if _, err := e.s.Purge(ctx, driver.PurgeRequest{Limit: 1}); err != nil {
		e.failure("Purge", err)
	}
	if _, err := e.s.Release(ctx, a.releasing(driver.StateReleased)); err != nil {
		e.failure("Release", err)
	}
	a.released(driver.StateReleased)

	b := e.claimed(a.taking(driver.TakeNone))
	if _, err := e.s.Complete(ctx, b.completion("done")); err != nil {
		e.failure("Complete", err)
	}
	b.completed("done")
	res := e.decided(a.taking(driver.TakeNone), driver.DecideReplay)
	if string(res.Record.Result.Data) != "done" || res.Record.Attempt != 2 {
		e.Errorf("replayed %d bytes of attempt %d", len(res.Record.Result.Data), res.Record.Attempt)
	}
}

// checkCancelledPowers does the same with the optional powers.
func checkCancelledPowers(e *env) {
	ctx := ended(e.ctx)
	a := e.claimed(claimReq(e.key()))
	a.completed("done")
	if s, ok := driver.PowerOf[driver.Lister](e.s); ok {
		if _, err := s.List(ctx, driver.ListRequest{Scope: e.scope}); err != nil {
			e.failure("List", err)
		}
		if got := len(e.listed(driver.ListRequest{Scope: e.scope})); got != 1 {
			e.Errorf("%d records are listed, want 1", got)
		}
	}
	if s, ok := driver.PowerOf[driver.HealthChecker](e.s); ok {
		if _, err := s.Health(ctx, driver.HealthRequest{}); err != nil {
			e.failure("Health", err)
		}
		if h, err := s.Health(e.ctx, driver.HealthRequest{}); err != nil || h.Completed != 1 {
			e.Errorf("Health: %d completed, %v; want 1", h.Completed, err)
		}
	}
	if s, ok := driver.PowerOf[driver.IdentityKeeper](e.s); ok {
		one := driver.KeepIdentityRequest{Check: [32]byte{1}}
		if _, err := s.KeepIdentity(ctx, one); err != nil {
			e.failure("KeepIdentity", err)
		}
		e.is("KeepIdentity, again", errOf(s.KeepIdentity(e.ctx, one)), nil)
	}
	if s, ok := driver.PowerOf[driver.ScopeDeleter](e.s); ok {
		if _, err := s.DeleteScope(ctx, driver.DeleteScopeRequest{Scope: e.scope, Limit: 10}); err != nil {
			e.failure("DeleteScope", err)
		}
		e.deleteScope(e.scope)
		e.absent(a.key())
	}
}
