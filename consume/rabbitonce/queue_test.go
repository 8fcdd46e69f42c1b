package rabbitonce_test

import (
	"slices"
	"testing"
	"time"

	"github.com/everonce/everonce/consume/rabbitonce"
)

// The pages say what is so where nobody says anything.
func TestDefaults(t *testing.T) {
	o, q, err := rabbitonce.Defaults()
	if err != nil {
		t.Fatal(err)
	}
	if o.Name != "billing on orders" || o.Prefetch != 16 || o.AckTimeout != 30*time.Minute || o.Workers.HandleWithin != 10*time.Minute ||
		o.Heartbeat != 10*time.Second || o.ReconnectMin != 500*time.Millisecond || o.ReconnectMax != 30*time.Second {
		t.Errorf("the options are %+v", o)
	}
	delays := []time.Duration{time.Second, 5 * time.Second, 30 * time.Second, 2 * time.Minute, 10 * time.Minute}
	if q.DeadLetters != "orders.dead" || !slices.Equal(q.Delays, delays) || q.Topology != rabbitonce.Declare || q.DeliveryLimit != 20 {
		t.Errorf("the queue is %+v", q)
	}
}

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
