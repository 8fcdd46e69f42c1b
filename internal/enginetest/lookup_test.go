package enginetest

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/driver"
)

func TestLookupInEachState(t *testing.T) {
	for state, want := range map[string]struct {
		outcome everonce.Outcome
		err     error
	}{
		"absent":       {everonce.Failed, everonce.ErrNotFound},
		"live":         {everonce.InProgress, everonce.ErrInProgress},
		"lapsed":       {everonce.Unknown, everonce.ErrOutcomeUnknown},
		"abandoned":    {everonce.Unknown, everonce.ErrOutcomeUnknown},
		"step unknown": {everonce.Unknown, everonce.ErrOutcomeUnknown},
		"released":     {everonce.Failed, everonce.ErrReleased},
		"completed":    {everonce.Replayed, nil},
		"tombstone":    {everonce.Expired, everonce.ErrExpired},
	} {
		t.Run(state, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newMapStore()
				r := newReceiver(t, s, everonce.Refuse, nil)
				key := keyOf("x")
				states[state](t, s, r, key)
				before, writes := s.record(key), s.count("Claim")
				for _, receiver := range []everonce.AnyReceiver{r, newTxReceiver(t, s, nil)} {
					res, err := everonce.Lookup[string](context.Background(), receiver, key)
					checkOutcome(t, res, err, want.outcome, want.err)
					checkEqual(t, "Attempt", res.Attempt, 0)
					switch state {
					case "completed":
						checkEqual(t, "value", res.Value, "v")
					case "live":
						checkEqual(t, "RetryAfter", asError(t, err).RetryAfter, time.Second)
					case "step unknown":
						checkEqual(t, "Step", asError(t, err).Step, "mail")
					}
				}
				checkEqual(t, "the record", s.record(key), before)
				checkEqual(t, "claims", s.count("Claim"), writes)
			})
		})
	}
}

func TestLookupOfResults(t *testing.T) {
	s := newFaultStore()
	r := newReceiver(t, s, everonce.Refuse, &everonce.Options{MaxResult: 10})
	ctx := context.Background()
	do(t, r, keyOf("p"), returns("", everonce.Permanent("declined", nil, nil)), everonce.Rejected, errAny)
	res, err := everonce.Lookup[string](ctx, r, keyOf("p"))
	checkOutcome(t, res, err, everonce.Rejected, errAny)
	checkEqual(t, "code", asPermanent(t, err).Code, "declined")

	do(t, r, keyOf("big"), returns("more than ten bytes", nil), everonce.Executed, nil)
	res, err = everonce.Lookup[string](ctx, r, keyOf("big"))
	checkOutcome(t, res, err, everonce.Elided, everonce.ErrResultElided)

	do(t, r, keyOf("f"), returns("v", nil), everonce.Executed, nil, everonce.FingerprintOf(1))
	res, err = everonce.Lookup[string](ctx, r, keyOf("f"), everonce.FingerprintOf(2))
	checkOutcome(t, res, err, everonce.Mismatch, everonce.ErrMismatch)
	res, err = everonce.Lookup[string](ctx, r, keyOf("f"), everonce.FingerprintOf(1))
	checkOutcome(t, res, err, everonce.Replayed, nil)
	n, err := everonce.Lookup[int](ctx, r, keyOf("f"))
	checkOutcome(t, n, err, everonce.StoreFailed, everonce.ErrUndecodable)

	res, err = everonce.Lookup[string](ctx, r, everonce.Key{})
	checkOutcome(t, res, err, everonce.Invalid, everonce.ErrInvalidKey)
}

func TestLookupWhenTheStoreFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFaultStore()
		r := newReceiver(t, s, everonce.Refuse, nil)
		do(t, r, keyOf("x"), returns("v", nil), everonce.Executed, nil)
		s.on("Get", 1, refuse(errNet))
		s.on("Get", 2, lose(errNet))
		res, err := everonce.Lookup[string](context.Background(), r, keyOf("x"))
		checkOutcome(t, res, err, everonce.Replayed, nil)

		for _, do := range []behaviour{refuse(errNet), hang, refuse(fmt.Errorf("sql: %w", everonce.ErrSchema))} {
			s.on("Get", 0, do)
			start := time.Now()
			res, err = everonce.Lookup[string](context.Background(), r, keyOf("x"))
			checkOutcome(t, res, err, everonce.StoreFailed, everonce.ErrStore) // never ErrNotFound (rule 7)
			if d := time.Since(start); d > 5*time.Second {
				t.Errorf("it took %v, the store's timeout is 5 s", d)
			}
		}
	})
}

func TestLookupOfANewerRecord(t *testing.T) {
	s := newMapStore()
	r := newReceiver(t, s, everonce.Refuse, nil)
	do(t, r, keyOf("x"), returns("v", nil), everonce.Executed, nil)
	rec := s.record(keyOf("x"))
	rec.Format = driver.FormatVersion + 1
	s.records[rec.ID] = rec
	res, err := everonce.Lookup[string](context.Background(), r, keyOf("x"))
	checkOutcome(t, res, err, everonce.StoreFailed, driver.ErrNewerRecord)
	checkErr(t, err, everonce.ErrStore)
}

// A look ends with the caller's deadline, and at StoreTimeout if that comes first or there is no deadline.
func TestLookIsBounded(t *testing.T) {
	for name, c := range map[string]struct {
		deadline, want time.Duration
		outcome        everonce.Outcome
	}{
		"no deadline":  {0, 5 * time.Second, everonce.StoreFailed},
		"a late one":   {time.Minute, 5 * time.Second, everonce.StoreFailed},
		"an early one": {3 * time.Second, 3 * time.Second, everonce.Failed}, // the caller's end is not the store's failure
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newFaultStore()
				s.on("Get", 1, hang)
				r := newReceiver(t, s, everonce.Refuse, &everonce.Options{StoreTimeout: 5 * time.Second})
				ctx := context.Background()
				if c.deadline > 0 {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, c.deadline)
					defer cancel()
				}
				start := time.Now()
				res, err := everonce.Lookup[string](ctx, r, keyOf("x"))
				checkOutcome(t, res, err, c.outcome, context.DeadlineExceeded)
				checkEqual(t, "the store's failure", errors.Is(err, everonce.ErrStore), c.outcome == everonce.StoreFailed)
				checkEqual(t, "time", time.Since(start), c.want)
				checkEqual(t, "calls", s.count("Get"), 1)
			})
		})
	}
}
