package enginetest

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/store/memstore"
)

// Prepared options are equal to the same options given to each call, and fail where those would.
func TestPrepare(t *testing.T) {
	ctx := t.Context()
	store := memstore.New(nil)
	r := newReceiver(t, store, everonce.Refuse, nil)
	life := everonce.Lifetime{Retention: 5 * time.Hour, Remember: 3 * time.Hour}
	prepared, err := r.Prepare(everonce.WithLifetime(life), everonce.WithCodec(everonce.Raw()), everonce.WithPolicy(everonce.Reexecute))
	if err != nil {
		t.Fatal(err)
	}
	do := func(r *everonce.Receiver, id string, opts ...everonce.CallOption) (everonce.Result[string], error) {
		return everonce.Do(ctx, r, keyOf(id), func(context.Context, *everonce.Attempt) (string, error) { return "paid", nil }, opts...)
	}
	record := func(id string) driver.Record {
		got, err := store.Get(ctx, driver.GetRequest{ID: r.RecordID(keyOf(id))})
		if err != nil || !got.Found {
			t.Fatal(got.Found, err)
		}
		return got.Record
	}
	sum := everonce.FingerprintOf("EUR")
	for id, opts := range map[string][]everonce.CallOption{
		"alone":                        {prepared},
		"with a fingerprint":           {prepared, sum},
		"with a fingerprint's address": {prepared, &sum},
		"with more":                    {prepared, everonce.WithWait(time.Second), sum},
	} {
		if res, err := do(r, id, opts...); err != nil || res.Outcome != everonce.Executed {
			t.Fatal(id, res.Outcome, err)
		}
		rec := record(id)
		if got := rec.PurgeAt.Sub(rec.CompletedAt); got != life.Total() || string(rec.Result.Data) != "paid" {
			t.Errorf("%s: kept for %v as %q, want %v and the raw text", id, got, rec.Result.Data, life.Total())
		}
		if want := len(opts) > 1; rec.Fingerprint.IsZero() == want {
			t.Errorf("%s: the fingerprint is %v, want one: %v", id, rec.Fingerprint, want)
		}
		if res, err := do(r, id, prepared, everonce.FingerprintOf("USD")); (len(opts) > 1) != errors.Is(err, everonce.ErrMismatch) {
			t.Errorf("%s: another request's fingerprint comes to %v: %v", id, res.Outcome, err)
		}
	}
	// Options behind it change one call, and not what was prepared.
	other := everonce.Lifetime{Retention: time.Minute}
	if _, err := do(r, "other", prepared, everonce.WithLifetime(other)); err != nil {
		t.Fatal(err)
	}
	if rec := record("other"); rec.PurgeAt.Sub(rec.CompletedAt) != other.Total() {
		t.Errorf("the option after the prepared ones is not applied: %v", rec.PurgeAt.Sub(rec.CompletedAt))
	}
	if _, err := do(r, "after", prepared); err != nil {
		t.Fatal(err)
	}
	if rec := record("after"); rec.PurgeAt.Sub(rec.CompletedAt) != life.Total() {
		t.Errorf("an option of another call has changed what was prepared: %v", rec.PurgeAt.Sub(rec.CompletedAt))
	}

	stranger := newReceiver(t, memstore.New(nil), everonce.Refuse, nil)
	for name, call := range map[string]func() error{
		"of another receiver": func() error { _, err := do(stranger, "x", prepared); return err },
		"not first":           func() error { _, err := do(r, "x", sum, prepared); return err },
		"twice":               func() error { _, err := do(r, "x", prepared, prepared); return err },
		"in Lookup, which has no policy": func() error {
			_, err := everonce.Lookup[string](ctx, r, keyOf("alone"), prepared)
			return err
		},
		"in a step": func() error {
			_, err := everonce.Do(ctx, r, keyOf("step"), func(ctx context.Context, a *everonce.Attempt) (string, error) {
				return everonce.Step(ctx, a, "one", func(context.Context) (string, error) { return "", nil }, prepared)
			})
			return err
		},
		"with what a call refuses": func() error { _, err := r.Prepare(everonce.WithLease(-1)); return err },
		"with nil":                 func() error { _, err := r.Prepare(nil); return err },
		"with a fingerprint":       func() error { _, err := r.Prepare(sum); return err },
		"with another mode's":      func() error { _, err := r.Prepare(everonce.Optimistic()); return err },
		"with what was prepared":   func() error { _, err := r.Prepare(prepared); return err },
	} {
		if err := call(); !errors.Is(err, everonce.ErrInvalidArgument) {
			t.Errorf("%s: %v, want ErrInvalidArgument", name, err)
		}
	}
	for name, opts := range map[string][]everonce.CallOption{"first": {prepared}, "second": {everonce.WithWait(time.Second), prepared}} {
		if _, err := r.Prepare(opts...); !strings.Contains(err.Error(), "a prepared option (it must be the first of an operation) cannot be used") {
			t.Errorf("what was prepared, %s in Prepare: %v", name, err)
		}
	}
}

func TestPrepareOfATxReceiver(t *testing.T) {
	s := newMapStore()
	x := newTxReceiver(t, s, nil)
	life := everonce.Lifetime{Retention: 5 * time.Hour}
	lived, err := x.Prepare(everonce.WithLifetime(life))
	if err != nil {
		t.Fatal(err)
	}
	transact(t, x, s, keyOf("transact"), adds, everonce.Executed, nil, lived, everonce.FingerprintOf("EUR"))
	transact(t, x, s, keyOf("transact"), txNever(t), everonce.Mismatch, everonce.ErrMismatch, lived, everonce.FingerprintOf("USD"))
	results, err := everonce.TransactBatch(t.Context(), x, []everonce.BatchItem{{Key: keyOf("batch")}},
		everonce.EachItem(func(ctx context.Context, tx *mapTx, _ int) (int, error) { return adds(ctx, tx) }), lived)
	if err != nil || results[0].Err != nil {
		t.Fatal(err, results)
	}
	for _, id := range []string{"transact", "batch"} {
		if rec := s.record(keyOf(id)); rec.PurgeAt.Sub(rec.CompletedAt) != life.Total() {
			t.Errorf("%s: kept for %v, want %v", id, rec.PurgeAt.Sub(rec.CompletedAt), life.Total())
		}
	}
	late, err := x.Prepare(everonce.Optimistic())
	if err != nil {
		t.Fatal(err)
	}
	transact(t, x, s, keyOf("optimistic"), adds, everonce.Executed, nil, late)
	if _, err := everonce.DoTx(t.Context(), s.begin(), x, keyOf("joined"), func(context.Context) (int, error) { return 0, nil }, late); !errors.Is(err, everonce.ErrInvalidArgument) {
		t.Errorf("DoTx with what it has no use for: %v, want ErrInvalidArgument", err)
	}
	if _, err := x.Prepare(everonce.WithLease(time.Minute)); !errors.Is(err, everonce.ErrInvalidArgument) {
		t.Errorf("a lease, which no transaction has: %v, want ErrInvalidArgument", err)
	}
}
