package outbox

import (
	"context"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/everonce/everonce/internal/sqlqueue"
)

// to publishes to the destination that is an event's type.
type to struct{ Publisher }

func (to) Destination(_ context.Context, e *Event) string { return e.Type }

func claimed(topic, destination string) []row {
	return []row{{common: sqlqueue.Row{ID: "1", Group: topic}, event: Event{Type: destination}}}
}

// Calls that were under way when a destination went away say no more than the first of them: the topic, or the one destination of
// several, is open again soon after an outage of two seconds.
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
				r.taken(rows)
				calls = append(calls, rows)
			}
			end := func(rows []row, err error) {
				r.noted(rows[0].lane, rows[0].probe, []error{err})
				r.ended(rows[0].lane, rows)
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
				if r.taken(rows); rows[0].held != nil {
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
