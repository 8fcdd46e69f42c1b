package drivertest

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/driver"
)

// engineChecks drive the store through the engine, where store and engine keep a rule together.
func engineChecks() []check {
	return []check{
		{name: "Engine/ManyDeliveriesTakeEffectOnce", run: checkManyDeliveries},
		{name: "Engine/ACrowdWaits", run: checkCrowdWaits},
		{name: "Rule06/CompletionOutlivesTheCaller", run: checkCallerGone},
		{name: "Rule10/ATooLargeResultIsElided", run: checkElided, needs: func(c Capabilities) bool { return c.RefusesLarger }},
		{name: "Rule13/UnderRefuseNothingUnsettledExpires", run: checkRefuseStays},
	}
}

// checkManyDeliveries brings one operation from many processes at once, each of which retries while it gets "in
// progress".
func checkManyDeliveries(e *env) {
	key := e.key()
	var effects atomic.Int64
	each(e.caps.Callers, func(i int) {
		r := e.receiver(e.handle(i), everonce.Refuse)
		for {
			res, err := everonce.Do(e.ctx, r, key, func(context.Context, *everonce.Attempt) (string, error) {
				if n := effects.Add(1); n > 1 {
					e.Errorf("the work ran %d times", n)
				}
				return "receipt", nil
			}, sumA)
			if errors.Is(err, everonce.ErrInProgress) && e.ctx.Err() == nil {
				continue
			}
			if err != nil || res.Value != "receipt" {
				e.Errorf("Do: %q, %v, %v", res.Value, res.Outcome, err)
			}
			return
		}
	})
	if n := effects.Load(); n != 1 {
		e.Errorf("the work ran %d times, want once", n)
	}
}

// checkCrowdWaits has a crowd wait for an attempt that first fails: one of them works, the others get its result.
func checkCrowdWaits(e *env) {
	key := e.key()
	var runs, executed, failed atomic.Int64
	receivers := [2]*everonce.Receiver{e.receiver(e.s, everonce.Refuse), e.receiver(e.h.Peer, everonce.Refuse)} // callers of one ask by turns
	each(min(e.caps.Callers, 16), func(i int) {
		r := receivers[i%2]
		res, err := everonce.Do(e.ctx, r, key, func(context.Context, *everonce.Attempt) (string, error) {
			if runs.Add(1) == 1 {
				return "", everonce.NotDone(errInjected)
			}
			return "receipt", nil
		}, everonce.WithWait(hung))
		switch {
		case errors.Is(err, errInjected):
			failed.Add(1)
		case err != nil || res.Value != "receipt":
			e.Errorf("Do: %q, %v, %v", res.Value, res.Outcome, err)
		case res.Outcome == everonce.Executed:
			executed.Add(1)
		}
	})
	if runs.Load() != 2 || executed.Load() != 1 || failed.Load() != 1 {
		e.Errorf("the work ran %d times, failed %d times and was executed %d times; want 2, 1, 1", runs.Load(), failed.Load(), executed.Load())
	}
}

type requestKey struct{}

// requestOf returns the context of the request that a store call is made for.
func requestOf(ctx context.Context) context.Context {
	if request, ok := ctx.Value(requestKey{}).(context.Context); ok {
		return request
	}
	return ctx
}

// checkCallerGone ends the caller's context while the work runs: what the work did is recorded.
func checkCallerGone(e *env) {
	for _, end := range []struct {
		name string
		err  error
		want driver.State
	}{
		{"done", nil, driver.StateCompleted},
		{"not done", everonce.NotDone(errInjected), driver.StateReleased},
		{"unknown", errInjected, driver.StateAbandoned},
		{"rejected", everonce.Permanent("declined", nil, nil), driver.StateCompleted},
	} {
		key := e.key()
		r, err := everonce.NewReceiver(e.s, everonce.Refuse, &everonce.Options{Lease: long, Codec: everonce.Raw(), CompletionTimeout: 2 * patience})
		if err != nil {
			e.Fatalf("NewReceiver: %v", err)
		}
		request, cancel := context.WithCancel(e.ctx)
		ctx := context.WithValue(request, requestKey{}, request)
		_, err = everonce.Do(ctx, r, key, func(ctx context.Context, a *everonce.Attempt) (string, error) {
			if _, err := everonce.Step(ctx, a, "mail", func(context.Context) (string, error) {
				cancel()
				return "sent", nil
			}); err != nil {
				e.Errorf("%s: the step that was running as the caller left: %v", end.name, err)
			}
			return "receipt", end.err
		})
		cancel()
		if errors.Is(err, everonce.ErrNotRecorded) {
			e.Fatalf("%s: not recorded: %v", end.name, err)
		}
		rec := e.get(key)
		if rec.State != end.want {
			e.Errorf("%s: the record is %v, want %v: the end of the work was lost with its caller", end.name, rec.State, end.want)
		}
		if s, ok := rec.Step("mail"); !ok || s.State != driver.StepDone {
			e.Errorf("%s: the step is %v, want done", end.name, s.State)
		}
	}
}

func checkElided(e *env) {
	r, err := everonce.NewReceiver(e.s, everonce.Refuse, &everonce.Options{Codec: everonce.Raw(), MaxResult: 2 * (e.caps.MaxResult + 1)})
	if err != nil {
		e.Fatalf("NewReceiver: %v", err)
	}
	key, runs := e.key(), 0
	for i := range 2 {
		res, err := everonce.Do(e.ctx, r, key, func(context.Context, *everonce.Attempt) ([]byte, error) {
			runs++
			return make([]byte, e.caps.MaxResult+1), nil
		}, everonce.WithSummary(func([]byte) []byte { return []byte("large") }))
		if i == 0 && (err != nil || len(res.Value) != e.caps.MaxResult+1) {
			e.Errorf("the first caller gets %d bytes, %v; want the value", len(res.Value), err)
		}
		var elided *everonce.Error
		if i == 1 && (!errors.Is(err, everonce.ErrResultElided) || !errors.As(err, &elided) || string(elided.Summary) != "large") {
			e.Errorf("a duplicate gets %v; want ErrResultElided, with the summary", err)
		}
	}
	if runs != 1 {
		e.Errorf("the work ran %d times", runs)
	}
}

// checkRefuseStays leaves an operation unknown under each policy, and lets its lifetime pass.
func checkRefuseStays(e *env) {
	points := e.count(func() *trial { return &trial{policy: everonce.Refuse, gateway: newGateway(false)} })
	for _, policy := range []everonce.Policy{everonce.Refuse, everonce.Reconcile, everonce.Reexecute} {
		key := e.key()
		p := newProcess(slices.Index(points, "effect"), dieAfter)
		r, err := everonce.NewReceiver(&faultStore{e.s, p}, policy, &everonce.Options{
			Lease: long, Lifetime: driver.Lifetime{Retention: short}, Codec: everonce.Raw(),
		})
		if err != nil {
			e.Fatalf("NewReceiver: %v", err)
		}
		var opts []everonce.CallOption
		if policy == everonce.Reconcile {
			opts = append(opts, everonce.WithReconcile(func(context.Context, everonce.Abandoned) (everonce.Verdict[string], error) {
				return everonce.StillUnknown[string](), nil
			}))
		}
		p.run(func() {
			_, err := everonce.Do(e.ctx, r, key, func(context.Context, *everonce.Attempt) (string, error) {
				return "", p.do("effect", func() error { return nil })
			}, opts...)
			e.Errorf("a process that is gone answers: %v", err)
		})
		a := attemptOf(e, claimReq(key), driver.ClaimResult{Record: e.get(key)})
		a.req.Lifetime = driver.Lifetime{Retention: short}
		a.lapse()
		e.pass(2 * short)
		e.purge()
		if got := e.look(key.RecordID()).Found; got != (policy != everonce.Reexecute) {
			e.Errorf("under %v the lapsed record still exists: %v", policy, got)
		}
	}
}
