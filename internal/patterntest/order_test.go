package patterntest

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/everonce/everonce/outbox"
)

// Of many events, of many keys, published by two relays at once, none is lost, none comes twice, and each key keeps its
// order.
func TestOrderOfManyEvents(t *testing.T) {
	t.Parallel()
	many := 1_000_000
	if testing.Short() {
		many = 20_000
	}
	h := onPgx(t)
	box, to := newOutbox(t, h), newArrivals()
	const each, keys = 1000, 500
	publish := outbox.PublisherFunc(func(_ context.Context, events []outbox.Event) []error {
		for i := range events {
			to.came(&events[i])
		}
		return nil
	})
	for range 2 {
		relaying(t, box, publish, &outbox.RelayOptions{Batch: 500, NoListen: true, Poll: 50 * time.Millisecond, Lease: time.Minute})
	}
	for from := 0; from < many; from += each {
		events := make([]outbox.Event, each)
		for i := range events {
			n := from + i
			events[i] = outbox.Event{ID: fmt.Sprint(n), Topic: "orders", Key: fmt.Sprint("k", n*7%keys), Payload: fmt.Append(nil, n)}
		}
		h.publish(t, box, events...)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute+time.Duration(many/200)*time.Second/10)
	defer cancel()
	must(t, to.await(ctx, many))
	h.settled(t, box)
	if n, again, err := to.distinct(); n != many || again != 0 || err != nil {
		t.Errorf("%d events, %d of them again: %v", n, again, err)
	}
}
