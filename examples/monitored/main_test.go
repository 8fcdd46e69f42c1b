package main

import (
	"context"
	"errors"
	"expvar"
	"strings"
	"testing"
	"time"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/store/memstore"
)

const want = `
executed 1
refused_missing-key 1
replayed 1
unknown 2
abandoned 1
`

// TestRun sends requests, and compares what was counted.
func TestRun(t *testing.T) {
	var out strings.Builder
	if err := run(t.Context(), &out); err != nil {
		t.Fatal(err)
	}
	if got := "\n" + out.String(); got != want {
		t.Errorf("it printed%s\nwant%s", got, want)
	}
}

// TestWatch: the age of the oldest is by the store's own clock, and ends when all is settled.
func TestWatch(t *testing.T) {
	ctx, now := t.Context(), time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	store := memstore.New(&memstore.Options{Now: func() time.Time { return now }})
	r, err := everonce.NewReceiver(store, everonce.Refuse, nil)
	if err != nil {
		t.Fatal(err)
	}
	var abandoned, oldest expvar.Int
	check := func(n, seconds int64) {
		t.Helper()
		if err := watch(ctx, store, &abandoned, &oldest); err != nil || abandoned.Value() != n || oldest.Value() != seconds {
			t.Errorf("%d, %d s, %v; want %d, %d s", abandoned.Value(), oldest.Value(), err, n, seconds)
		}
	}
	keys := []everonce.Key{{Scope: "charges", ID: "1"}, {Scope: "charges", ID: "2"}}
	for _, key := range keys {
		_, err := everonce.Do(ctx, r, key, func(context.Context, *everonce.Attempt) (string, error) { return "", errors.New("timeout") })
		if !errors.Is(err, everonce.ErrOutcomeUnknown) {
			t.Fatal(err)
		}
		now = now.Add(time.Hour)
	}
	check(2, 2*3600)
	for _, key := range keys {
		if err := r.Settle(ctx, key, everonce.Settlement{Verdict: everonce.SettleNotDone}); err != nil {
			t.Fatal(err)
		}
	}
	check(0, 0)
}
