package main

import (
	"context"
	"expvar"
	"strings"
	"testing"
	"time"

	"github.com/everonce/everonce/driver"
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

// counted is a store that was counted.
type counted driver.Health

func (c counted) Health(context.Context) (driver.Health, error) { return driver.Health(c), nil }

// TestWatch: the age of the oldest is by the store's own clock, and ends when all is settled.
func TestWatch(t *testing.T) {
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	var abandoned, oldest expvar.Int
	for _, c := range []struct {
		health counted
		n, age int64
	}{
		{counted{Abandoned: 2, OldestAbandoned: now.Add(-time.Hour), Now: now}, 2, 3600},
		{counted{Now: now}, 0, 0},
	} {
		if err := watch(t.Context(), c.health, &abandoned, &oldest); err != nil || abandoned.Value() != c.n || oldest.Value() != c.age {
			t.Errorf("%d, %d s, %v; want %d, %d s", abandoned.Value(), oldest.Value(), err, c.n, c.age)
		}
	}
}
