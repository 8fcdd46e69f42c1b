package outbox

import (
	"context"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/everonce/everonce/consume"
	"github.com/everonce/everonce/internal/sqlqueue"
)

// to publishes to the destination that is an event's type.
type to struct{ Publisher }

func (to) Destination(_ context.Context, e *Event) string { return e.Type }

func claimed(topic, destination string) []row {
	return []row{{common: sqlqueue.Row{ID: "1", Group: topic}, event: Event{Type: destination}}}
}

// Calls that were under way when a destination went away say no more than the first of them: the topic, or the one
// destination of several, is open again soon after an outage of two seconds.
func TestOnlyAProbeLengthensAPause(t *testing.T) {
	for _, destination := range []string{"", "a"} {
		synctest.Test(t, func(t *testing.T) {
			r := &Relay{set: RelayOptions{InFlight: 400, Log: slog.New(slog.DiscardHandler)}, gates: make(map[lane]*gate)}
			if destination != "" {
				r.publisher = to{}
			}
			const outage = 2 * time.Second
			began := time.Now()
			var calls [][]row
			for range 10 {
				rows := claimed("orders", destination)
				r.admitAll(rows)
				calls = append(calls, rows)
			}
			end := func(rows []row, err error) {
				r.recordCall(rows[0].lane, rows[0].probe, []error{err})
				r.release(rows[0].lane, rows)
			}
			for _, rows := range calls {
				time.Sleep(20 * time.Millisecond)
				end(rows, ErrUnavailable)
			}
			for probes := 0; ; time.Sleep(10 * time.Millisecond) {
				if _, except := r.lanes(); slices.Contains(except, "orders") {
					continue
				}
				rows := claimed("orders", destination)
				if r.admitAll(rows); rows[0].held != nil {
					continue
				}
				if probes++; probes > 5 {
					t.Fatalf("%d calls found out", probes)
				}
				time.Sleep(10 * time.Millisecond)
				if time.Since(began) >= outage {
					end(rows, nil)
					break
				}
				end(rows, ErrUnavailable)
			}
			if took := time.Since(began); took > 3*outage {
				t.Errorf("it was open again after %v", took)
			}
		})
	}
}

// severalDestinations is a relay of several destinations in a topic, without a table.
func severalDestinations() *Relay {
	return &Relay{publisher: to{}, set: RelayOptions{InFlight: 400, Retry: consume.RetryPolicy{Min: time.Second, Max: 10 * time.Minute, Limit: 10}, Log: slog.New(slog.DiscardHandler)}, gates: make(map[lane]*gate)}
}

// Claims of 100 to a destination that answers are all sent at once: the first too, and the first after an idle hour.
func TestAHealthyDestinationIsSentAllAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := severalDestinations()
		for range 3 {
			var all []row
			for range 200 {
				all = append(all, claimed("orders", "a")...)
			}
			for rows := range slices.Chunk(all, 100) {
				r.admitAll(rows)
				for i := range rows {
					if rows[i].held != nil {
						t.Fatalf("event %d is held: %v", i, rows[i].held)
					}
				}
			}
			for rows := range slices.Chunk(all, 100) {
				r.finalErrors(rows[0].lane, rows, make([]error, len(rows)))
				r.release(rows[0].lane, rows)
			}
			time.Sleep(time.Hour)
			r.lanes()
		}
	})
}

// An outage delays an old event about as long as it lasted: neither an event that failed during it nor one that a pause
// held is delayed by its age. After a long outage, events that failed wait longer than a pause.
func TestAnOutageCostsAnOldEventLittle(t *testing.T) {
	for _, tc := range []struct{ outage, least, most time.Duration }{{500 * time.Millisecond, 0, 3 * time.Second}, {time.Hour, 2 * time.Minute, maxWait}} {
		synctest.Test(t, func(t *testing.T) {
			r := severalDestinations()
			old := time.Now().Add(-24 * time.Hour).UnixMicro()
			began := time.Now()
			var longest time.Duration // that a probe's event waits
			try := func() (held bool, after time.Duration) {
				rows := claimed("orders", "a")
				rows[0].common.CreatedAt, rows[0].common.Now = old, time.Now().UnixMicro()
				r.admitAll(rows)
				err := rows[0].held
				if held = err != nil; !held {
					if time.Since(began) < tc.outage {
						err = ErrUnavailable
					}
					err = r.finalErrors(rows[0].lane, rows, []error{err})[0]
					r.release(rows[0].lane, rows)
				}
				var v Report
				r.report(&rows[0], err, &v)
				return held, v.After
			}
			for {
				held, after := try()
				if !held && after == 0 { // published
					break
				}
				if held && after > maxPause*3/2 {
					t.Fatalf("held for %v, %v after the outage began", after, time.Since(began))
				}
				if !held {
					longest = max(longest, after)
				}
				time.Sleep(min(after, maxPause)) // then another event comes
			}
			if longest < tc.least || longest > tc.most {
				t.Errorf("after an outage of %v an event waits for %v", tc.outage, longest)
			}
			if late := time.Since(began) - tc.outage; late > min(2*tc.outage+2*time.Second, 2*maxPause) {
				t.Errorf("the destination got its first event %v after the outage", late)
			}
		})
	}
}
