package drivertest

import (
	"bytes"
	"fmt"
	"reflect"
	"strings"
	"time"

	"github.com/everonce/everonce/driver"
)

// normal returns a record as the suite compares it: times in microseconds, no difference between nil and
// empty, and of a tombstone only what a purge leaves, for a purge may have come at any time.
func normal(rec driver.Record, now time.Time) driver.Record {
	tombstone := rec.StateAt(now) == driver.StateTombstone
	for _, t := range []*time.Time{
		&rec.LeaseUntil, &rec.CreatedAt, &rec.ClaimedAt, &rec.UpdatedAt, &rec.CompletedAt, &rec.ResultUntil, &rec.PurgeAt,
		&rec.Previous.ClaimedAt,
	} {
		*t = normalTime(*t)
	}
	rec.Result = normalResult(rec.Result)
	steps := rec.Steps
	rec.Steps = nil
	if tombstone {
		rec.Result.Codec, rec.Result.Data = "", nil
		return rec
	}
	for _, s := range steps {
		s.BeganAt, s.EndedAt = normalTime(s.BeganAt), normalTime(s.EndedAt)
		s.Result = normalResult(s.Result)
		rec.Steps = append(rec.Steps, s)
	}
	return rec
}

func normalTime(t time.Time) time.Time {
	if t.IsZero() {
		return time.Time{}
	}
	return t.UTC().Truncate(time.Microsecond)
}

func normalResult(r driver.SavedResult) driver.SavedResult {
	if len(r.Data) == 0 {
		r.Data = nil
	}
	if len(r.Summary) == 0 {
		r.Summary = nil
	}
	return r
}

// diff names the fields in which two records differ at a time; empty if they do not. It omits the values: a result
// may have megabytes.
func diff(got, want driver.Record, now time.Time) string {
	got, want = normal(got, now), normal(want, now)
	var b strings.Builder
	g, w := reflect.ValueOf(got), reflect.ValueOf(want)
	for i := range g.NumField() {
		name := g.Type().Field(i).Name
		gv, wv := g.Field(i).Interface(), w.Field(i).Interface()
		if reflect.DeepEqual(gv, wv) {
			continue
		}
		if gr, ok := gv.(driver.SavedResult); ok {
			wr := wv.(driver.SavedResult)
			fmt.Fprintf(&b, "; Result %s", diffResult(gr, wr))
			continue
		}
		fmt.Fprintf(&b, "; %s is %v, want %v", name, gv, wv)
	}
	return strings.TrimPrefix(b.String(), "; ")
}

func diffResult(got, want driver.SavedResult) string {
	return fmt.Sprintf("is %v by %q, %d bytes (equal: %v), summary equal: %v; want %v by %q, %d bytes",
		got.Kind, got.Codec, len(got.Data), bytes.Equal(got.Data, want.Data), bytes.Equal(got.Summary, want.Summary),
		want.Kind, want.Codec, len(want.Data))
}

// same fails unless two records are equal at the store's present time.
func (e *env) same(what string, got, want driver.Record) {
	e.Helper()
	if d := diff(got, want, e.now()); d != "" {
		e.Fatalf("%s: %s", what, d)
	}
}
