package everonce_test

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/everonce/everonce"
)

// A claim may arrive long after its caller has sent it again and joined those who wait. It gets the record then, in the name of a
// caller that does not know: that one asks for itself, and works. It does so too where others are told first that the outcome is
// unknown, since the lease has run out.
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
				late := requests[everonce.ClaimRequest](&s.faults, "Claim")[1]
				time.Sleep(100 * time.Millisecond)
				for range c.others {
					wg.Go(func() {
						res, err := everonce.Do(t.Context(), here, keyOf("x"), returns("another's", nil), opts...)
						if c.lease < time.Second && res.Outcome == everonce.Unknown { // whoever asked first found a lease that had run out
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
				if res, err := s.under.Claim(t.Context(), late); err != nil || res.Decision != everonce.DecideClaimed {
					t.Fatalf("the claim that comes late: %v, %v", res.Decision, err)
				}
				wg.Wait()
			})
		})
	}
}
