package sqsonce_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/consume"
	"github.com/everonce/everonce/consume/sqsonce"
	"github.com/everonce/everonce/outbox"
)

// An event that is published again is a duplicate; an event that SQS refuses is set aside, and blocks no others.
func TestPublishes(t *testing.T) {
	t.Parallel()
	for _, fifo := range []bool{false, true} {
		b := newBench(t, fifo, 100)
		p, err := sqsonce.NewPublisher(b.client, nil)
		if err != nil {
			t.Fatal(err)
		}
		var events []outbox.Event
		for i := range 23 {
			events = append(events, outbox.Event{
				ID: fmt.Sprint("event-", i), Topic: b.queue.Name, Key: fmt.Sprint("key ", i%3), Type: "order.placed", ContentType: "application/json",
				Headers: map[string]string{"trace": "t"}, Payload: fmt.Appendf(nil, `{"id":%d}`, i),
			})
		}
		events[20].Payload = []byte(strings.Repeat("x", 1<<20+1))
		events[21].Payload = []byte("{\"id\":\x00}") // SQS takes no such character
		for range 2 {
			for i, err := range p.Publish(t.Context(), events) {
				refused := i == 20 || i == 21
				if _, permanent := errors.AsType[*everonce.PermanentError](err); permanent != refused || err != nil && !refused {
					t.Errorf("event %d: %v", i, err)
				}
			}
		}
		var mu sync.Mutex
		var got []string
		b.run(b.client, b.handler(func(_ context.Context, m *consume.Message, o order) error {
			mu.Lock()
			defer mu.Unlock()
			got = append(got, m.ID)
			if m.ID != fmt.Sprint("event-", o.ID) || m.ContentType != "application/json" || m.Headers["trace"] != "t" || m.Headers[sqsonce.AttributeEventType] != "order.placed" {
				t.Errorf("the message is %s", asJSON(t, m))
			}
			return nil
		}, nil), quick())
		for range map[bool]int{false: 42, true: 21}[fifo] {
			b.until(consume.Ack)
		}
		b.empty(b.url)
		if len(got) != 21 {
			t.Errorf("%d took effect: %v", len(got), got)
		}
	}
}

// A queue that does not exist counts as a failure of the event, and one that does not answer does not.
func TestPublishFails(t *testing.T) {
	t.Parallel()
	b := newBench(t, false, 100)
	event := []outbox.Event{{ID: "1", Topic: "there-is-none", Payload: []byte("1")}}
	for client, unavailable := range map[sqsonce.Client]bool{b.client: false, newClient(t, "http://127.0.0.1:1"): true} {
		p, err := sqsonce.NewPublisher(client, nil)
		if err != nil {
			t.Fatal(err)
		}
		if errs := p.Publish(t.Context(), event); errs[0] == nil || errors.Is(errs[0], outbox.ErrUnavailable) != unavailable {
			t.Errorf("the errors are %v", errs)
		}
	}
}
