package enginetest

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/driver"
)

// The observation of a step says how it ended: elided, refused with a detail that was too large, or with a panic in
// one that runs again.
func TestObserverGetsStepsThatAreCut(t *testing.T) {
	rec := &recorder{}
	s := newFaultStore()
	r := newReceiver(t, s, everonce.Reexecute, &everonce.Options{Observer: rec, MaxResult: 10})
	inAttempt(t, r, keyOf("x"), func(ctx context.Context, a *everonce.Attempt) {
		_, err := everonce.Step(ctx, a, "long", stepReturns("more than ten bytes", nil))
		checkErr(t, err, nil)
		s.on("SaveStep", 4, refuse(driver.ErrTooLarge))
		_, err = everonce.Step(ctx, a, "refused", stepReturns("", everonce.Permanent("declined", nil, []byte("detail"))))
		checkEqual(t, "Truncated", asPermanent(t, err).Truncated, true)
		func() {
			defer func() { checkEqual(t, "recovered", recover(), any("boom")) }()
			_, _ = everonce.Step(ctx, a, "panics", func(context.Context) (string, error) { panic("boom") })
		}()
	})
	events := rec.take(t)
	checkEqual(t, "Elided", events[0].Elided, "size")
	checkEqual(t, "outcome of the refusal", events[1].Outcome, everonce.Rejected)
	checkEqual(t, "outcome of the panic", events[2].Outcome, everonce.Failed)
}

// Waited is the time until the answer, not until the last time that the duplicate asked.
func TestObserverGetsTheWaitOfADuplicate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rec := &recorder{}
		r := newReceiver(t, newFaultStore(), everonce.Refuse, &everonce.Options{Observer: rec})
		release, wg := running(t, r)
		time.AfterFunc(1500*time.Millisecond, func() { close(release) })
		do(t, r, keyOf("x"), never(t), everonce.Replayed, nil, everonce.WithWait(time.Hour))
		wg.Wait()
		for _, ev := range rec.take(t) {
			checkEqual(t, "Waited of what was "+ev.Outcome.String(), ev.Waited, map[everonce.Outcome]time.Duration{everonce.Replayed: 1500 * time.Millisecond}[ev.Outcome])
		}
	})
}

// Calls that are no operation are not observed: a look, a transaction without a key, and an invalid call, of a step
// too. A call in the wrong place is observed.
func TestObserverIgnoresCallsThatAreNoOperation(t *testing.T) {
	rec := &recorder{}
	s := newMapStore()
	o := &everonce.Options{Observer: rec}
	r, x := newReceiver(t, s, everonce.Refuse, o), newTxReceiver(t, s, o)
	_, err := everonce.Lookup[string](t.Context(), r, keyOf("x"))
	checkErr(t, err, everonce.ErrNotFound)
	checkErr(t, x.InTx(t.Context(), func(context.Context, *mapTx) error { return nil }), nil)
	do(t, r, everonce.Key{}, never(t), everonce.Invalid, everonce.ErrInvalidKey)
	do(t, r, keyOf("x"), nil, everonce.Invalid, everonce.ErrInvalidArgument)
	do(t, r, keyOf("x"), never(t), everonce.Invalid, everonce.ErrInvalidArgument, everonce.Optimistic())
	transact(t, x, s, everonce.Key{}, txNever(t), everonce.Invalid, everonce.ErrInvalidKey)
	checkErr(t, r.Settle(t.Context(), everonce.Key{}, everonce.Settlement{Verdict: everonce.SettleDone}), everonce.ErrInvalidKey)
	checkEqual(t, "events", len(rec.take(t)), 0)
	do(t, r, keyOf("x"), func(ctx context.Context, a *everonce.Attempt) (string, error) {
		for _, name := range []string{"", "once", "once"} {
			_, _ = everonce.Step(ctx, a, name, stepReturns("v", nil))
		}
		res, err := everonce.Do(ctx, r, keyOf("x"), never(t))
		checkOutcome(t, res, err, everonce.Invalid, everonce.ErrNested)
		return "v", nil
	}, everonce.Executed, nil)
	var told []string
	for _, ev := range rec.take(t) {
		told = append(told, ev.Kind+" "+ev.Outcome.String())
	}
	checkEqual(t, "observed", told, []string{"step executed", "do invalid", "do executed"})
}
