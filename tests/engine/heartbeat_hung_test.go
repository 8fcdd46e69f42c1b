package engine

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/everonce/everonce"
)

// A renewal whose answer never comes is given up while there is room for another (rule 5), also where the
// whole lease is shorter than what a call of the store may take.
func TestOneHungRenewalDoesNotCostTheLease(t *testing.T) {
	for _, lease := range []time.Duration{30 * time.Millisecond, time.Second, 5 * time.Second, 30 * time.Second} {
		t.Run(lease.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newFaultStore()
				r := newReceiver(t, s, everonce.Refuse, &everonce.Options{Lease: lease})
				s.on("Renew", 1, hang)
				do(t, r, keyOf("x"), func(ctx context.Context, a *everonce.Attempt) (string, error) {
					select {
					case <-time.After(4 * lease):
					case <-ctx.Done():
						t.Errorf("the work was told to end: %v", context.Cause(ctx))
					}
					checkEqual(t, "Lost", a.Lost(), false)
					return "v", nil
				}, everonce.Executed, nil)
				if n := s.count("Renew"); n < 3 {
					t.Errorf("%d renewals, the first of which hung, in four leases", n)
				}
			})
		})
	}
}
