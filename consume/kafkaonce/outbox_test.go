package kafkaonce_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/consume"
	"github.com/everonce/everonce/consume/kafkaonce"
	"github.com/everonce/everonce/outbox"
)

func newPublisher(t *testing.T, url string) *kafkaonce.Publisher {
	t.Helper()
	p, err := kafkaonce.NewPublisher(url, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() }) //nolint:errcheck // it has none
	return p
}

func event(topic, id, key string) outbox.Event {
	return outbox.Event{ID: id, Topic: topic, Key: key, ContentType: "application/json", Payload: []byte(`{"id":"` + id + `"}`)}
}

// Trap: an idempotent producer is forgotten when its process ends. The next relay publishes again what the last one
// published and did not note, and the broker keeps both. By its ID the event takes effect once; without everonce
// twice.
func TestTrapAnIdempotentProducerForgets(t *testing.T) {
	t.Parallel()
	b := newBench(t, 1)
	e := event(b.topic.Name, "e-1", "order-7")
	e.Type, e.CreatedAt, e.Headers = "order.placed", time.Unix(1_700_000_000, 0), map[string]string{"traceparent": "00-1", "ce_id": "another"}
	for range 2 {
		p := newPublisher(t, b.url)
		if err := errors.Join(p.Publish(t.Context(), []outbox.Event{e})...); err != nil {
			t.Fatal(err)
		}
	}
	without := make(chan string, 10)
	natural, err := consume.NewNatural(consume.NaturalSpec[order]{Consumer: "naive", Key: consume.ProducerID(), Handle: func(_ context.Context, m *consume.Message, _ order) (bool, error) {
		without <- m.ID
		return true, nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	b.runWith(&running{t: t}, natural, nil)
	for range 2 {
		await(t, without, "the event")
	}
	b.group = newName()
	r := b.run(specOf(func(_ context.Context, m *consume.Message, o order) error {
		if o.ID != "e-1" || m.ID != "e-1" || m.Subject != "order-7" || m.Headers["traceparent"] != "00-1" || m.Headers["ce_type"] != "order.placed" || m.ContentType != "application/json" || m.Headers["ce_time"] != "2023-11-14T22:13:20Z" || time.Since(m.First) > time.Hour {
			t.Errorf("%+v of %+v", o, m)
		}
		return nil
	}), nil)
	r.wants(everonce.Executed, everonce.Replayed)
}

// Of many events that are on their way together each has its own answer, and none overtakes one with its key.
func TestEachEventHasItsAnswer(t *testing.T) {
	t.Parallel()
	b := newBench(t, 3)
	small := b.retry("100ms") // any topic of the test
	b.create(small, 1, map[string]*string{"max.message.bytes": kadm.StringPtr("5000")})
	p := newPublisher(t, b.url)
	events := make([]outbox.Event, 0, 103)
	for i := range 100 {
		events = append(events, event(b.topic.Name, fmt.Sprintf("e-%02d", i), fmt.Sprint("key-", i%5)))
	}
	if err := errors.Join(p.Publish(t.Context(), events)...); err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	last := map[string]string{}
	r := b.run(specOf(nothing), &kafkaonce.Options{Workers: consume.Workers{Concurrency: 1, Order: func(m *consume.Message) string {
		mu.Lock()
		defer mu.Unlock()
		if m.ID <= last[m.Subject] {
			t.Errorf("%s came after %s", m.ID, last[m.Subject])
		}
		last[m.Subject] = m.ID
		return ""
	}}})
	for range 100 {
		await(t, r.decisions, "a decision")
	}
	r.stop()

	events = events[:0]
	for i := range 10 { // each fits into the topic, all of them do not fit into a batch of it
		events = append(events, event(small, fmt.Sprint("small-", i), ""))
		events[i].Payload = []byte(random(2000))
	}
	events[5].Payload = []byte(random(8000))
	for i, err := range p.Publish(t.Context(), events) {
		if _, permanent := errors.AsType[*everonce.PermanentError](err); permanent != (i == 5) || err != nil && !permanent {
			t.Errorf("event %d: %v", i, err)
		}
	}

	// A compacted topic refuses the whole batch for an event without a key.
	events = []outbox.Event{event(b.letters(), "e-1", "a"), event(b.letters(), "e-2", ""), event(b.letters(), "e-3", "c")}
	for i, err := range p.Publish(t.Context(), events) {
		if _, permanent := errors.AsType[*everonce.PermanentError](err); permanent != (i == 1) || err != nil && !permanent {
			t.Errorf("event %d to a compacted topic: %v", i, err)
		}
	}

	late := b.retry("400ms")
	b.set(late, map[string]string{"message.timestamp.before.max.ms": "0"})
	for _, want := range []struct {
		topic     string
		permanent bool
	}{{b.topic.Name + ".none", false}, {"no topic!", true}, {late, false}} {
		err := p.Publish(t.Context(), []outbox.Event{event(want.topic, "e-1", "")})[0]
		if _, permanent := errors.AsType[*everonce.PermanentError](err); err == nil || permanent != want.permanent || errors.Is(err, outbox.ErrUnavailable) {
			t.Errorf("topic %q: %v", want.topic, err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if err := newPublisher(t, "kafka://127.0.0.1:1").Publish(ctx, []outbox.Event{event("orders", "e-1", "")})[0]; !errors.Is(err, outbox.ErrUnavailable) {
		t.Errorf("without a broker: %v", err)
	}
}

// random is a text that cannot be compressed.
func random(n int) string {
	var b strings.Builder
	for b.Len() < n {
		b.WriteString(newName())
	}
	return b.String()[:n]
}
