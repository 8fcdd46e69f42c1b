package rabbitonce_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/everonce/everonce/consume/rabbitonce"
	"github.com/everonce/everonce/outbox"
)

// AMQP has no text of more than 255 bytes where it has a short one. The client library ends its connection over a longer one: so that
// event is refused before, and the events beside it are published once.
func TestALongTextIsRefusedAndPublishesNothingTwice(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.declare()
	p := newPublisher(t, b.url, &rabbitonce.PublisherOptions{Address: func(e *outbox.Event) rabbitonce.Address {
		if key, ok := e.Headers["key"]; ok {
			return rabbitonce.Address{Exchange: "amq.fanout", RoutingKey: key}
		}
		return rabbitonce.Address{RoutingKey: e.Topic}
	}})
	published(t, p.Publish(t.Context(), []outbox.Event{event(b.queue.Name, "warm")}))
	b.take(b.queue.Name)
	fields := map[string]func(e *outbox.Event, text string){
		"ID":           func(e *outbox.Event, text string) { e.ID = text },
		"type":         func(e *outbox.Event, text string) { e.Type = text },
		"content type": func(e *outbox.Event, text string) { e.ContentType = text },
		"header name":  func(e *outbox.Event, text string) { e.Headers = map[string]string{text: "a"} },
	}
	for _, field := range slices.Sorted(maps.Keys(fields)) {
		good, bad := event(b.queue.Name, "at the limit"), event(b.queue.Name, "beyond it")
		fields[field](&good, strings.Repeat("x", 255))
		fields[field](&bad, strings.Repeat("x", 256))
		errs := p.Publish(t.Context(), []outbox.Event{event(b.queue.Name, "before"), good, bad, event(b.queue.Name, "after")})
		if errs[0] != nil || errs[1] != nil || !isPermanent(errs[2]) || errs[3] != nil {
			t.Errorf("%s: %v", field, errs)
		}
		for range 3 {
			b.take(b.queue.Name)
		}
	}
	long := event(b.queue.Name, "long")
	long.Headers = map[string]string{"key": strings.Repeat("x", 256)}
	if errs := p.Publish(t.Context(), []outbox.Event{long}); !isPermanent(errs[0]) {
		t.Errorf("routing key: %v", errs)
	}
	b.wantLength(b.queue.Name, 0) // none was published twice
}
