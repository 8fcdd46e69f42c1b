package enginetest

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/driver"
)

// A claim may arrive long after its caller has sent it again and joined those who wait. It then gets the record for
// a caller that does not know: the next caller to ask informs it, and it claims and works. It does so even if
// others get the unknown outcome first, because the lease has run out.
func TestAClaimThatComesLateIsItsCallersOwn(t *testing.T) {
	type crowded struct {
		others int
		lease  time.Duration
	}
	short := slices.Repeat([]crowded{{100, 20 * time.Millisecond}}, 10) // who asks first is chance
	for _, c := range append(short, crowded{0, 2 * time.Second}, crowded{100, 2 * time.Second}) {
		t.Run(fmt.Sprint(c.others, " others, lease ", c.lease), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newFaultStore()
				here, there := newReceiver(t, s, everonce.Refuse, nil), newReceiver(t, s, everonce.Refuse, nil)
				release, wg := runningInVain(t, there)
				s.on("Claim", 2, refuse(errNet)) // it is on its way
				opts := []everonce.CallOption{everonce.WithWait(time.Hour), everonce.WithLease(c.lease)}
				wg.Go(func() {
					do(t, here, keyOf("x"), returns("v", nil), everonce.Executed, nil, opts...)
				})
				synctest.Wait()
				late := requests[driver.ClaimRequest](&s.faults, "Claim")[1]
				time.Sleep(100 * time.Millisecond)
				for range c.others {
					wg.Go(func() {
						res, err := everonce.Do(t.Context(), here, keyOf("x"), returns("another's", nil), opts...)
						if c.lease < time.Second && res.Outcome == everonce.Unknown { // the first to ask found a lapsed lease
							return
						}
						if checkOutcome(t, res, err, everonce.Replayed, nil); res.Value != "v" {
							t.Errorf("the value is %q", res.Value)
						}
					})
				}
				time.Sleep(20 * time.Second)
				s.heal()
				close(release)
				synctest.Wait()
				if res, err := s.under.Claim(t.Context(), late); err != nil || res.Decision != driver.DecideClaimed {
					t.Fatalf("the claim that comes late: %v, %v", res.Decision, err)
				}
				wg.Wait()
			})
		})
	}
}

// Those whose claims were sent again, as after an outage, ask by turns too, one for all.
func TestThoseWhoseClaimsWereSentAgainAskByTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const many = 1000
		s := newFaultStore()
		here, there := newReceiver(t, s, everonce.Refuse, nil), newReceiver(t, s, everonce.Refuse, nil)
		release, wg := running(t, there)
		s.on("Claim", 0, refuse(errNet))
		for range many {
			wg.Go(func() { do(t, here, keyOf("x"), never(t), everonce.Replayed, nil, everonce.WithWait(time.Hour)) })
		}
		synctest.Wait()
		s.heal()
		time.Sleep(time.Second)
		claims := s.count("Claim")
		checkEqual(t, "their claims", claims >= 1+2*many, true)
		time.Sleep(20 * time.Second)
		if n := s.count("Claim") - claims; n > 50 {
			t.Errorf("in 20 s there were %d claims", n)
		}
		close(release)
		wg.Wait()
	})
}

// Each caller whose first claim comes late is informed, whichever caller asks: it has the record at once, and its
// lease is renewed.
func TestLateClaimsReachTheirCallers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFaultStore()
		r := newReceiver(t, s, everonce.Refuse, nil)
		release, wg := runningInVain(t, r)
		s.on("Claim", 0, refuse(errNet)) // they are on their way
		var mu sync.Mutex
		var worked []time.Time
		for range 20 {
			wg.Go(func() {
				_, err := everonce.Do(t.Context(), r, keyOf("x"), func(context.Context, *everonce.Attempt) (string, error) {
					mu.Lock()
					worked = append(worked, time.Now())
					mu.Unlock()
					time.Sleep(30 * time.Second)
					return "v", everonce.NotDone(errWork)
				}, everonce.WithWait(24*time.Hour), everonce.WithLease(5*time.Second))
				checkErr(t, err, errWork)
			})
		}
		synctest.Wait()
		late := requests[driver.ClaimRequest](&s.faults, "Claim")[1:]
		s.heal()
		time.Sleep(20 * time.Second)
		s.on("Release", 1, func(ctx context.Context, call func() error) error { // one arrives before any of those who are woken
			err := call()
			res, lateErr := s.under.Claim(context.WithoutCancel(ctx), late[7])
			checkErr(t, lateErr, nil)
			checkEqual(t, "the late claim", res.Decision, driver.DecideClaimed)
			return err
		})
		close(release)
		start := time.Now()
		time.Sleep(20 * time.Second)
		mu.Lock()
		checkEqual(t, "attempts", len(worked), 1)
		checkEqual(t, "it worked after", worked[0].Sub(start), 0*time.Second)
		mu.Unlock()
		got, err := s.under.Get(t.Context(), driver.GetRequest{ID: late[7].ID})
		checkErr(t, err, nil)
		checkEqual(t, "whose it is", got.Record.Nonce, late[7].Nonce)
		wg.Wait()
		checkEqual(t, "attempts in the end", len(worked), 20)
	})
}

// Nor is the claim of a caller that leaves just as it arrives left behind: nothing ran, so nothing is unknown.
func TestAClaimThatComesLateToACallerThatGoes(t *testing.T) {
	for range 20 { // it is chance whether it learns of the claim before it leaves
		synctest.Test(t, func(t *testing.T) {
			s := newFaultStore()
			r := newReceiver(t, s, everonce.Refuse, nil)
			release, wg := runningInVain(t, r)
			s.on("Claim", 2, refuse(errNet)) // it is on its way
			ctx, gone := context.WithCancel(t.Context())
			defer gone()
			wg.Go(func() { _, _ = everonce.Do(ctx, r, keyOf("x"), never(t), everonce.WithWait(time.Hour)) })
			synctest.Wait()
			late := requests[driver.ClaimRequest](&s.faults, "Claim")[1]
			time.Sleep(10 * time.Second)
			s.heal()
			wg.Go(func() { do(t, r, keyOf("x"), returns("w", nil), everonce.Executed, nil, everonce.WithWait(time.Hour)) })
			time.Sleep(5 * time.Second)
			s.on("Release", 1, func(ctx context.Context, call func() error) error {
				err := call()
				res, lateErr := s.under.Claim(context.WithoutCancel(ctx), late)
				checkErr(t, lateErr, nil)
				checkEqual(t, "the late claim", res.Decision, driver.DecideClaimed)
				return err
			})
			s.on("Claim", s.count("Claim")+1, func(_ context.Context, call func() error) error {
				err := call()
				gone()
				return err
			})
			close(release)
			wg.Wait()
		})
	}
}
