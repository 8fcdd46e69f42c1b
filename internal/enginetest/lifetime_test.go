package enginetest

import (
	"context"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/store/memstore"
)

// longest is the longest part of a lifetime, and the longest lease.
const longest = 100 * 365 * 24 * time.Hour

// A sum of two parts that overflows would make a record that is gone as soon as it is completed.
func TestLifetimesThatWouldOverflowAreRefused(t *testing.T) {
	for name, life := range map[string]everonce.Lifetime{
		"for ever, and remembered":   {Retention: math.MaxInt64, Remember: time.Hour},
		"remembered for ever":        {Retention: time.Hour, Remember: math.MaxInt64},
		"for ever":                   {Retention: math.MaxInt64},
		"two halves of for ever":     {Retention: math.MaxInt64/2 + 1, Remember: math.MaxInt64/2 + 1},
		"a little above the longest": {Retention: longest + 1},
		"so long remembered":         {Retention: 1, Remember: longest + 1},
	} {
		t.Run(name, func(t *testing.T) {
			s := newFaultStore()
			_, err := everonce.NewReceiver(s, everonce.Refuse, &everonce.Options{Lifetime: life})
			checkErr(t, err, everonce.ErrInvalidArgument)
			_, err = everonce.NewTxReceiver(newMapStore(), &everonce.Options{Lifetime: life})
			checkErr(t, err, everonce.ErrInvalidArgument)
			r := newReceiver(t, s, everonce.Refuse, nil)
			do(t, r, keyOf("x"), never(t), everonce.Invalid, everonce.ErrInvalidArgument, everonce.WithLifetime(life))
			err = r.Settle(context.Background(), keyOf("x"), everonce.Settlement{Verdict: everonce.SettleDone, Lifetime: life})
			checkErr(t, err, everonce.ErrInvalidArgument)
			checkEqual(t, "calls of the store", len(s.calls), 0)
		})
	}
}

func TestLeasesThatWouldOverflowAreRefused(t *testing.T) {
	s := newFaultStore()
	r := newReceiver(t, s, everonce.Refuse, nil)
	for _, lease := range []time.Duration{math.MaxInt64, longest + 1} {
		_, err := everonce.NewReceiver(s, everonce.Refuse, &everonce.Options{Lease: lease})
		checkErr(t, err, everonce.ErrInvalidArgument)
		do(t, r, keyOf("x"), never(t), everonce.Invalid, everonce.ErrInvalidArgument, everonce.WithLease(lease))
	}
	checkEqual(t, "calls of the store", len(s.calls), 0)
	do(t, r, keyOf("x"), returns("v", nil), everonce.Executed, nil, everonce.WithLease(longest))
}

// The longest lifetime that is accepted is one: nothing purges the record, and its end is in the future.
func TestTheLongestLifetimeKeepsTheRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New(nil)
		life := everonce.Lifetime{Retention: longest, Remember: longest}
		r := newReceiver(t, s, everonce.Refuse, &everonce.Options{Lifetime: life})
		do(t, r, keyOf("x"), returns("v", nil), everonce.Executed, nil)
		rec := recordIn(t, s, keyOf("x"))
		checkEqual(t, "the end of the result", rec.ResultUntil.Sub(rec.CompletedAt), life.Retention)
		checkEqual(t, "the end of the record", rec.PurgeAt.Sub(rec.CompletedAt), life.Total())
		time.Sleep(longest / 4)
		purged, err := s.Purge(context.Background(), driver.PurgeRequest{Limit: 10})
		checkErr(t, err, nil)
		checkEqual(t, "purged", purged, driver.PurgeResult{})
		do(t, newReceiver(t, s, everonce.Refuse, nil), keyOf("x"), never(t), everonce.Replayed, nil)
	})
}

// Every write that renews says by how much, and how long the record is kept: a record that forgot it would be
// purged under its attempt.
func TestRenewalsCarryLeaseAndLifetime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFaultStore()
		r := newReceiver(t, s, everonce.Reexecute, &everonce.Options{Lease: 9 * time.Second, Lifetime: everonce.ForFinance()})
		do(t, r, keyOf("x"), func(ctx context.Context, a *everonce.Attempt) (string, error) {
			time.Sleep(4 * time.Second)
			return everonce.Step(ctx, a, "mail", func(context.Context) (string, error) { return "sent", nil })
		}, everonce.Executed, nil)
		for _, req := range requests[driver.RenewRequest](&s.faults, "Renew") {
			checkEqual(t, "the renewal's", []any{req.Lease, req.Lifetime}, []any{9 * time.Second, everonce.ForFinance()})
		}
		for _, req := range requests[driver.SaveStepRequest](&s.faults, "SaveStep") {
			checkEqual(t, "the step's", []any{req.Lease, req.Lifetime}, []any{9 * time.Second, everonce.ForFinance()})
		}
		checkEqual(t, "renewals and steps", []int{s.count("Renew"), s.count("SaveStep")}, []int{1, 2})
	})
}
