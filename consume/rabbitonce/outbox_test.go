package rabbitonce_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/consume"
	"github.com/everonce/everonce/consume/rabbitonce"
	"github.com/everonce/everonce/outbox"
)

func newPublisher(t *testing.T, url string, opts *rabbitonce.PublisherOptions) *rabbitonce.Publisher {
	t.Helper()
	p, err := rabbitonce.NewPublisher(url, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

func event(topic, id string) outbox.Event {
	return outbox.Event{ID: id, Topic: topic, ContentType: "application/json", Payload: []byte(`{"id":"` + id + `"}`)}
}

func isPermanent(err error) bool {
	_, ok := errors.AsType[*everonce.PermanentError](err)
	return ok
}

// published fails the test unless all were.
func published(t *testing.T, errs []error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// An event that is published again takes effect once: its consumer knows it by its ID.
func TestPublishedTwiceTakesEffectOnce(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	ran := 0
	r := b.run(specOf(func(_ context.Context, m *consume.Message, o order) error {
		if ran++; o.ID != "e-1" || m.ID != "e-1" || m.Headers["traceparent"] != "00-1" || m.First.Unix() != 1_700_000_000 {
			t.Errorf("%+v of %+v", o, m)
		}
		return nil
	}), nil)
	p := newPublisher(t, b.url, nil)
	e := event(b.queue.Name, "e-1")
	e.Type, e.CreatedAt, e.Headers = "order.placed", time.Unix(1_700_000_000, 0), map[string]string{"traceparent": "00-1"}
	for _, want := range []everonce.Outcome{everonce.Executed, everonce.Replayed} {
		published(t, p.Publish(t.Context(), []outbox.Event{e}))
		r.wants(want)
	}
	r.stop()
	published(t, p.Publish(t.Context(), []outbox.Event{e}))
	if d := b.take(b.queue.Name); ran != 1 || d.Type != "order.placed" || d.DeliveryMode != amqp.Persistent || d.ContentType != "application/json" {
		t.Errorf("it ran %d times; %+v", ran, d)
	}
}

// Of many events that are on their way together each has its own answer, and none behind one that failed overtakes it.
func TestEachEventHasItsAnswer(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.declare()
	full := b.queue.Name + ".full"
	if _, err := b.ch.QueueDeclare(full, false, false, false, false, amqp.Table{"x-max-length": int64(1), "x-overflow": "reject-publish"}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.deleteQueue(full) })
	exchange := b.queue.Name + ".events"
	if err := b.ch.ExchangeDeclare(exchange, "direct", false, false, false, false, nil); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.ch.ExchangeDelete(exchange, false, false) }) //nolint:errcheck // of the test
	if err := b.ch.QueueBind(b.queue.Name, "placed", exchange, false, nil); err != nil {
		t.Fatal(err)
	}
	p := newPublisher(t, b.url, &rabbitonce.PublisherOptions{Address: func(e *outbox.Event) rabbitonce.Address {
		switch e.Type {
		case "lost":
			return rabbitonce.Address{Exchange: exchange, RoutingKey: "unbound"}
		case "nowhere":
			return rabbitonce.Address{Exchange: exchange + ".none"}
		case "full":
			return rabbitonce.Address{RoutingKey: full}
		}
		return rabbitonce.Address{Exchange: exchange, RoutingKey: "placed"}
	}})
	tooMany := map[string]string{}
	for i := range 13_000 { // 64 KiB of names and values are more in a frame
		tooMany[fmt.Sprint(i)] = ""
	}
	var events []outbox.Event
	add := func(id, kind, key string, headers map[string]string) {
		e := event("orders", id)
		e.Type, e.Key, e.Headers = kind, key, headers
		events = append(events, e)
	}
	add("1", "", "a", nil)
	add("lost", "lost", "b", nil)
	add("2", "", "a", nil)
	add("behind", "", "b", nil)
	add("nowhere", "nowhere", "", nil)
	add("full-1", "full", "f", nil)
	add("full-2", "full", "f", nil)
	add("odd", "", "", map[string]string{"CC": "a text"}) // the broker wants a list
	add("ours", "", "", map[string]string{"x-everonce-reason": "rejected"})
	add("wide", "", "", tooMany)
	for i := range 200 {
		add(fmt.Sprint("more-", i), "", "", nil)
	}
	errs := p.Publish(t.Context(), events)
	for i, err := range errs {
		ok := err == nil
		switch events[i].ID {
		case "lost":
			ok = errors.Is(err, rabbitonce.ErrUnroutable) && !errors.Is(err, outbox.ErrUnavailable) && !isPermanent(err)
		case "behind":
			ok = err != nil
		case "nowhere":
			ok = err != nil && !errors.Is(err, outbox.ErrUnavailable) && !isPermanent(err)
		case "full-2":
			ok = errors.Is(err, outbox.ErrUnavailable)
		case "odd", "ours", "wide":
			ok = isPermanent(err)
		}
		if !ok {
			t.Errorf("%s: %v", events[i].ID, err)
		}
	}
	seen := b.ids()
	if slices.Contains(seen, "behind") || slices.Index(seen, "1") > slices.Index(seen, "2") || slices.Index(seen, "1") < 0 {
		t.Errorf("the queue has %q", seen)
	}
	for i := range 200 {
		if id := fmt.Sprint("more-", i); !slices.Contains(seen, id) {
			t.Errorf("%s did not arrive", id)
		}
	}
}

// ids takes all messages out of the queue.
func (b *bench) ids() (ids []string) {
	b.t.Helper()
	for {
		d, ok, err := b.ch.Get(b.queue.Name, true)
		if err != nil {
			b.t.Fatal(err)
		}
		if !ok {
			return ids
		}
		ids = append(ids, d.MessageId)
	}
}

// A connection that is cut again and again loses no event and no order: what has failed is published again.
func TestPublishingOverALineThatIsCut(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.declare()
	w := newWire(t, b.url)
	p := newPublisher(t, w.url, nil)
	const n, keys = 400, 5
	waiting := make([]outbox.Event, n)
	for i := range waiting {
		waiting[i] = event(b.queue.Name, fmt.Sprintf("%03d", i))
		waiting[i].Key = fmt.Sprint("k", i%keys)
	}
	failed := 0
	end := time.Now().Add(soon)
	for round := 0; len(waiting) > 0; round++ {
		if time.Now().After(end) {
			t.Fatalf("%d events are left", len(waiting))
		}
		if round < 6 {
			cut := time.AfterFunc(time.Duration(round)*7*time.Millisecond, w.cut)
			defer cut.Stop()
		}
		var left []outbox.Event
		part := waiting[:min(50, len(waiting))]
		for i, err := range p.Publish(t.Context(), part) {
			if err == nil {
				continue
			}
			failed++
			if left = append(left, part[i]); isPermanent(err) {
				t.Fatalf("%s: %v", part[i].ID, err)
			}
		}
		waiting = append(left, waiting[len(part):]...)
	}
	last := map[byte]string{}
	seen := map[string]bool{}
	for _, id := range b.ids() {
		line := (id[2] - '0') % keys
		if !seen[id] && id < last[line] {
			t.Errorf("%s came after %s", id, last[line])
		}
		seen[id], last[line] = true, max(id, last[line])
	}
	if failed == 0 {
		t.Error("no cut hit a message: the test is blind")
	}
	if len(seen) != n {
		t.Errorf("%d events arrived, want %d", len(seen), n)
	}
}

// An unavailable broker is no failure of an event. NewPublisher refuses an invalid URL, without its password in the
// error.
func TestAnUnavailableBroker(t *testing.T) {
	t.Parallel()
	p := newPublisher(t, "amqp://billing:s3cret@127.0.0.1:1/", nil)
	errs := p.Publish(t.Context(), []outbox.Event{event("orders", "e-1"), event("orders", "e-2")})
	for _, err := range errs {
		if !errors.Is(err, outbox.ErrUnavailable) || !errors.Is(err, rabbitonce.ErrUnreachable) {
			t.Error(err)
		}
	}
	for _, url := range []string{"", "http://s3cret"} {
		if _, err := rabbitonce.NewPublisher(url, nil); !errors.Is(err, everonce.ErrInvalidArgument) {
			t.Errorf("%q: %v", url, err)
		}
	}
}

// An event that is too large for the broker is set aside, and does not take others with it. Whatever keeps the broker from taking any
// is no failure of an event: a user who may not publish, or a broker that is short of memory.
func (n *node) publisher(t *testing.T) {
	b := newBenchOn(t, n.URL)
	b.declare()
	p := newPublisher(t, n.URL, nil)
	restore := n.largestMessage("200000")
	large := event(b.queue.Name, "large")
	large.Payload = largeMessage("large").Body
	errs := p.Publish(t.Context(), []outbox.Event{event(b.queue.Name, "e-1"), large, event(b.queue.Name, "e-2")})
	restore()
	if refused, ok := errors.AsType[*everonce.PermanentError](errs[1]); !ok || refused.Code != "too_large" || errs[0] != nil || errs[2] != nil {
		t.Errorf("%v", errs)
	}
	if ids := b.ids(); !slices.Contains(ids, "e-1") || !slices.Contains(ids, "e-2") || slices.Contains(ids, "large") {
		t.Errorf("the queue has %q", ids)
	}

	forbidden := newPublisher(t, n.user(t, "mute", "", "", ""), nil)
	if errs := forbidden.Publish(t.Context(), []outbox.Event{event(b.queue.Name, "e-3"), event(b.queue.Name, "e-4")}); !errors.Is(errs[0], outbox.ErrUnavailable) || !errors.Is(errs[1], outbox.ErrUnavailable) {
		t.Errorf("forbidden: %v", errs)
	}

	n.ctl("set_vm_memory_high_watermark", "0.0000001")
	ctx, end := context.WithTimeout(t.Context(), soon)
	defer end()
	if errs := p.Publish(ctx, []outbox.Event{event(b.queue.Name, "e-5")}); ctx.Err() != nil || !errors.Is(errs[0], outbox.ErrUnavailable) {
		t.Errorf("blocked: %v", errs)
	}
	n.ctl("set_vm_memory_high_watermark", "absolute", "512MB")
	for ctx.Err() == nil && errors.Join(p.Publish(ctx, []outbox.Event{event(b.queue.Name, "e-6")})...) != nil {
	}
	if !slices.Contains(b.ids(), "e-6") {
		t.Error("nothing is published after the broker was short of memory")
	}
}
