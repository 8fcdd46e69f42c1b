package enginetest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/store/memstore"
)

// An answer that one caller has read for all is not used for a caller that came later: by then it may have been
// forgotten, and the key be in use again.
func TestAnOldAnswerIsNotForLaterCallers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFaultStore()
		here, there := newReceiver(t, s, everonce.Refuse, nil), newReceiver(t, s, everonce.Refuse, nil)
		var wg sync.WaitGroup
		attempt := func(v string) (end chan struct{}) {
			end = make(chan struct{})
			wg.Go(func() { do(t, there, keyOf("x"), blocks(end, v), everonce.Executed, nil) })
			synctest.Wait()
			return end
		}
		waits := func(want string) {
			wg.Go(func() {
				res, _ := do(t, here, keyOf("x"), never(t), everonce.Replayed, nil, everonce.WithWait(time.Hour))
				checkEqual(t, "value", res.Value, want)
			})
			synctest.Wait()
		}
		end := attempt("one")
		waits("one")
		time.Sleep(10 * time.Second)
		slow := make(chan struct{})
		s.on("Claim", s.count("Claim")+1, func(_ context.Context, call func() error) error {
			err := call()
			<-slow
			return err
		})
		close(end)
		time.Sleep(1500 * time.Millisecond)                                                                                // it has been asked by now, and the answer is on its way
		res, err := s.under.(*memstore.Store).DeleteScope(t.Context(), driver.DeleteScopeRequest{Scope: keyOf("x").Scope}) //nolint:forcetypeassert // it is
		checkErr(t, err, nil)
		checkEqual(t, "forgotten", res.Records, 1)
		end = attempt("two")
		waits("two")
		time.Sleep(5 * time.Second)
		close(slow)
		time.Sleep(5 * time.Second)
		close(end)
		wg.Wait()
	})
}

// The record that one caller has read decides the others' calls as their own claims would: by their own
// fingerprints.
func TestAnAnswerIsComparedWithEachFingerprint(t *testing.T) {
	for seed := range 10 {
		synctest.Test(t, func(t *testing.T) {
			s := newFaultStore()
			r := newReceiver(t, s, everonce.Refuse, nil)
			release, wg := runningInVain(t, r)
			var mu sync.Mutex
			of := [2]map[everonce.Outcome]int{{}, {}} // the outcomes, by fingerprint
			for i := range 20 {
				wg.Go(func() {
					res, err := everonce.Do(t.Context(), r, keyOf("x"), func(context.Context, *everonce.Attempt) (string, error) {
						time.Sleep(time.Microsecond) // no caller asks meanwhile
						return fmt.Sprint(i % 2), nil
					}, everonce.FingerprintOf(i%2), everonce.WithWait(time.Hour))
					mu.Lock()
					defer mu.Unlock()
					of[i%2][res.Outcome]++
					if err == nil {
						checkEqual(t, "value", res.Value, fmt.Sprint(i%2))
					} else {
						checkErr(t, err, everonce.ErrMismatch)
					}
				})
				if i == seed { // another is the first to ask
					synctest.Wait()
				}
			}
			synctest.Wait()
			close(release)
			wg.Wait()
			claims := s.count("Claim")
			if of[0][everonce.Executed] == 0 {
				of[0], of[1] = of[1], of[0]
			}
			checkEqual(t, "calls with the fingerprint that claimed", of[0], map[everonce.Outcome]int{everonce.Executed: 1, everonce.Replayed: 9})
			checkEqual(t, "calls with the other", of[1], map[everonce.Outcome]int{everonce.Mismatch: 10})
			if claims > 21+1+45+20 {
				t.Errorf("%d claims", claims)
			}
		})
	}
}

// By their own policies: of those who wait for an attempt that died, who may run it again does.
func TestAnAnswerIsDecidedByEachPolicy(t *testing.T) {
	const lease = 10 * time.Second
	for _, first := range []everonce.Policy{everonce.Refuse, everonce.Reexecute} {
		t.Run(first.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newFaultStore()
				r := newReceiver(t, s, everonce.Refuse, nil)
				diedIn(t, s, keyOf("x"), lease)
				start := time.Now()
				var wg sync.WaitGroup
				var mu sync.Mutex
				of := map[everonce.Policy]map[everonce.Outcome]int{everonce.Refuse: {}, everonce.Reexecute: {}}
				waits := func(p everonce.Policy) {
					wg.Go(func() {
						res, err := everonce.Do(t.Context(), r, keyOf("x"), returns("second", nil), everonce.WithPolicy(p), everonce.WithWait(time.Hour))
						mu.Lock()
						defer mu.Unlock()
						of[p][res.Outcome]++
						if err != nil {
							checkErr(t, err, everonce.ErrOutcomeUnknown)
						}
						if d := time.Since(start); d < lease || d > lease+10*time.Millisecond {
							t.Errorf("it was answered after %v, want the end of the lease of %v", d, lease)
						}
					})
				}
				for range 5 {
					waits(first)
					synctest.Wait()
				}
				for range 5 {
					waits(everonce.Refuse)
					waits(everonce.Reexecute)
				}
				wg.Wait()
				checkEqual(t, "executed", of[everonce.Reexecute][everonce.Executed], 1)
				checkEqual(t, "unknown under Reexecute", of[everonce.Reexecute][everonce.Unknown], 0)
				checkEqual(t, "executed under Refuse", of[everonce.Refuse][everonce.Executed], 0)
			})
		})
	}
}

// sealed is a codec that only its owner reads.
type sealed struct{ owner string }

func (c sealed) Name() string                  { return "sealed" }
func (c sealed) Marshal(v any) ([]byte, error) { return json.Marshal([]any{c.owner, v}) }

func (c sealed) Unmarshal(data []byte, v any) error {
	var owner string
	if err := json.Unmarshal(data, &[]any{&owner, v}); err != nil || owner != c.owner {
		return errors.Join(err, errors.New("it is another's"))
	}
	return nil
}

// And by their own codecs.
func TestAnAnswerIsDecodedByEachCodec(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReceiver(t, newFaultStore(), everonce.Refuse, &everonce.Options{Wait: time.Hour})
		release := make(chan struct{})
		var wg sync.WaitGroup
		wg.Go(func() {
			do(t, r, keyOf("x"), blocks(release, "v"), everonce.Executed, nil, everonce.WithCodec(sealed{"a"}))
		})
		synctest.Wait()
		for range 5 {
			wg.Go(func() {
				res, _ := do(t, r, keyOf("x"), never(t), everonce.Replayed, nil, everonce.WithCodec(sealed{"a"}))
				checkEqual(t, "value", res.Value, "v")
			})
			wg.Go(func() {
				do(t, r, keyOf("x"), never(t), everonce.StoreFailed, everonce.ErrUndecodable, everonce.WithCodec(sealed{"b"}))
			})
			wg.Go(func() { do(t, r, keyOf("x"), never(t), everonce.StoreFailed, everonce.ErrUndecodable) })
		}
		synctest.Wait()
		close(release)
		wg.Wait()
	})
}

// Callers that get the same answer may each change their copy.
func TestCopiesOfAnAnswerAreTheirOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFaultStore()
		r := newReceiver(t, s, everonce.Refuse, &everonce.Options{Codec: everonce.Raw(), Wait: time.Hour})
		var wg sync.WaitGroup
		for i := range 100 {
			wg.Go(func() {
				res, err := everonce.Do(t.Context(), r, keyOf("x"), func(context.Context, *everonce.Attempt) ([]byte, error) {
					time.Sleep(time.Second)
					return nil, everonce.Permanent("no_funds", errWork, []byte("detail"))
				}, everonce.WithSummary(func([]byte) []byte { return []byte("summary") }))
				p := asPermanent(t, err)
				checkEqual(t, "outcome", res.Outcome, everonce.Rejected)
				checkEqual(t, "detail", string(p.Detail), "detail")
				for j := range p.Detail {
					p.Detail[j] = byte(i)
				}
			})
		}
		wg.Wait()
		if n := s.count("Claim"); n > 100+20 {
			t.Errorf("%d claims", n)
		}
	})
}
