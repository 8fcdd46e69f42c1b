package rabbitonce_test

import (
	"testing"
	"time"

	"github.com/everonce/everonce/consume/rabbitonce"
)

// A message gets the first delay that is long enough, or the last, in whatever order they were given.
func TestDelays(t *testing.T) {
	ours := []time.Duration{time.Hour, 2 * time.Second, time.Minute}
	for _, c := range []struct {
		delays      []time.Duration
		after, want time.Duration
	}{
		{nil, 0, time.Second},
		{nil, time.Second, time.Second},
		{nil, time.Second + 1, 5 * time.Second},
		{nil, 5*time.Second + 1, 30 * time.Second},
		{nil, time.Minute, 2 * time.Minute},
		{nil, 9 * time.Minute, 10 * time.Minute},
		{nil, time.Hour, 10 * time.Minute},
		{ours, time.Second, 2 * time.Second},
		{ours, 3 * time.Second, time.Minute},
		{ours, 2 * time.Hour, time.Hour},
	} {
		got, err := rabbitonce.DelayFor(rabbitonce.Queue{Name: "orders", Delays: c.delays}, c.after)
		if got != c.want || err != nil {
			t.Errorf("after %v, of %v: %v (%v), want %v", c.after, c.delays, got, err, c.want)
		}
	}
}
