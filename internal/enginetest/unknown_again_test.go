package enginetest

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/everonce/everonce"
)

// An unknown outcome comes with a RetryAfter where the next call goes on or asks, and without one where it would
// only say the same until somebody has settled it: under every policy of the operation and of a step, however the
// attempt ended.
func TestRetryAfterOfTheUnknown(t *testing.T) {
	const failed, panicked, notWritten = "failed", "panicked", "not written"
	for _, policy := range policies {
		for _, inSteps := range []bool{false, true} {
			for _, stepPolicy := range append([]everonce.Policy{0}, policies...) { // 0: the work has no step
				for _, ending := range []string{failed, panicked, notWritten} {
					t.Run(fmt.Sprintf("%v, in steps %v, step under %v, %s", policy, inSteps, stepPolicy, ending), func(t *testing.T) {
						synctest.Test(t, func(t *testing.T) {
							s := newMapStore()
							o := &everonce.Options{EffectsInSteps: inSteps, Lease: time.Minute, RetryAfter: 7 * time.Second}
							r, x := newReceiver(t, s, policy, o), newTxReceiver(t, s, o)
							other := newReceiver(t, s, everonce.Refuse, &everonce.Options{RetryAfter: o.RetryAfter})
							with := []everonce.CallOption{everonce.WithPolicy(policy)}
							if inSteps {
								with = append(with, everonce.EffectsInSteps())
							}
							begun := 0 // calls of the work, and questions
							fail := func(context.Context) (string, error) {
								if ending == panicked {
									panic(errWork)
								}
								return "", errWork
							}
							ask := everonce.WithReconcile(func(context.Context, everonce.Abandoned) (verdict, error) {
								begun++
								return everonce.StillUnknown[string](), nil
							})
							call := func() (err error) {
								defer func() {
									if p := recover(); p != nil {
										err = errWork
									}
								}()
								_, err = everonce.Do(context.Background(), r, keyOf("x"), func(ctx context.Context, a *everonce.Attempt) (string, error) {
									begun++
									if stepPolicy == 0 {
										return fail(ctx)
									}
									return everonce.Step(ctx, a, "s", fail, everonce.WithPolicy(stepPolicy), ask)
								}, ask)
								return err
							}
							// helps reports what an error says of the next call; nothing where it does not say that the outcome is unknown.
							helps := func(err error) (again, says bool) {
								if !errors.Is(err, everonce.ErrOutcomeUnknown) {
									return false, false
								}
								after := asError(t, err).RetryAfter
								if after != 0 {
									checkEqual(t, "RetryAfter", after, o.RetryAfter)
								}
								return after != 0, true
							}
							if ending == notWritten {
								s.on("Release", 0, refuse(errNet))
							}
							err := call()
							if ending == notWritten { // and the lease is over
								s.heal()
								time.Sleep(2 * o.Lease)
								err = nil
							}
							for round := range 3 {
								_, looked := everonce.Lookup[string](context.Background(), r, keyOf("x"))
								_, lookedWith := everonce.Lookup[string](context.Background(), other, keyOf("x"), with...)
								begun = 0
								next := call()
								for name, said := range map[string]error{"the call before": err, "Lookup": looked, "Lookup with its options": lookedWith} {
									if again, says := helps(said); says && again != (begun > 0) {
										t.Errorf("round %d: %s says %q, and then %d were begun", round, name, said, begun)
									}
								}
								err = next
							}
							if again, says := helps(err); !says && policy != everonce.Reexecute && !inSteps {
								t.Errorf("it is not unknown at the end: %v", err)
							} else if says && again {
								// A transaction takes nothing over: to it, it stays unknown.
								_, err := everonce.Transact(context.Background(), x, keyOf("x"), adds)
								checkErr(t, err, everonce.ErrOutcomeUnknown)
								checkEqual(t, "RetryAfter, to a transaction", asError(t, err).RetryAfter, 0)
								_, err = everonce.Lookup[int](context.Background(), x, keyOf("x"))
								checkErr(t, err, everonce.ErrOutcomeUnknown)
								checkEqual(t, "RetryAfter, to Lookup for transactions", asError(t, err).RetryAfter, 0)
							}
						})
					})
				}
			}
		}
	}
}
