package rabbitonce

import (
	"slices"
	"testing"
	"time"
)

// Zero fields have the defaults of docs/reference/options.md.
func TestDefaults(t *testing.T) {
	t.Parallel()
	o, err := (*Options)(nil).withDefaults("shipping", "orders")
	if err != nil {
		t.Fatal(err)
	}
	for name, got := range map[string][2]time.Duration{
		"HandleTimeout": {o.Workers.HandleTimeout, 10 * time.Minute},
		"SettleTimeout": {o.Workers.SettleTimeout, 10 * time.Second},
		"AckTimeout":    {o.AckTimeout, 30 * time.Minute},
		"Heartbeat":     {o.Heartbeat, 10 * time.Second},
		"Backoff.Min":   {o.Backoff.Min, 500 * time.Millisecond},
		"Backoff.Max":   {o.Backoff.Max, 30 * time.Second},
	} {
		if got[0] != got[1] {
			t.Errorf("%s is %v, want %v", name, got[0], got[1])
		}
	}
	if o.Workers.Concurrency != 8 || o.Prefetch != 16 || o.Name != "shipping on orders" {
		t.Errorf("Concurrency %d, Prefetch %d, Name %q", o.Workers.Concurrency, o.Prefetch, o.Name)
	}
	batches := Options{}
	batches.Workers.Batch = 100
	if o, err := batches.withDefaults("shipping", "orders"); err != nil || o.Prefetch != 1600 {
		t.Errorf("in batches of 100: Prefetch %d, %v", o.Prefetch, err)
	}
	q, err := (&Queue{Name: "orders"}).withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	delays := []time.Duration{time.Second, 5 * time.Second, 30 * time.Second, 2 * time.Minute, 10 * time.Minute}
	if !slices.Equal(q.Delays, delays) || q.DeadLetters != "orders.dead" || q.Topology != Declare || q.DeliveryLimit != 20 {
		t.Errorf("Queue: %+v", q)
	}
}
