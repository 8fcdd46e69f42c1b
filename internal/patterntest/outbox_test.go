package patterntest

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/backlog"
	"github.com/everonce/everonce/consume"
	"github.com/everonce/everonce/outbox"
)

// newOutbox returns an outbox with its table.
func newOutbox[Tx any](t testing.TB, h *handle[Tx]) *outbox.Outbox[Tx] {
	t.Helper()
	box, err := outbox.New(h.receiver, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := box.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	return box
}

// sink is a destination that notes what it was sent.
type sink struct {
	mu     sync.Mutex
	events []outbox.Event
	came   chan struct{}
	answer func(e *outbox.Event) error
}

func newSink() *sink { return &sink{came: make(chan struct{}, 1)} }

func (s *sink) publisher() outbox.Publisher {
	return outbox.One(1, func(_ context.Context, e *outbox.Event) error {
		s.mu.Lock()
		defer s.mu.Unlock()
		var err error
		if s.answer != nil {
			err = s.answer(e)
		}
		if err == nil {
			s.events = append(s.events, *e)
		}
		select {
		case s.came <- struct{}{}:
		default:
		}
		return err
	})
}

// await waits until the condition on what came holds.
func (s *sink) await(t testing.TB, what string, holds func(events []outbox.Event) bool) []outbox.Event {
	t.Helper()
	for {
		s.mu.Lock()
		events := slices.Clone(s.events)
		s.mu.Unlock()
		if holds(events) {
			return events
		}
		select {
		case <-s.came:
		case <-time.After(hung):
			t.Fatalf("%s: it did not come about; %d events came", what, len(events))
		}
	}
}

func (s *sink) awaitCount(t testing.TB, n int) []outbox.Event {
	t.Helper()
	return s.await(t, fmt.Sprint(n, " events"), func(events []outbox.Event) bool { return len(events) >= n })
}

// relaying runs a relay until the test ends, or stop is called.
func relaying[Tx any](t testing.TB, box *outbox.Outbox[Tx], to outbox.Publisher, opts *outbox.RelayOptions) (stop func()) {
	t.Helper()
	relay, err := box.Relay(to, opts)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- relay.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(stop)
	return stop
}

func TestOutboxPublishesWhatCommitted(t *testing.T) {
	onAll(t, testOutboxPublishesWhatCommitted[pgx.Tx], testOutboxPublishesWhatCommitted[*sql.Tx])
}

func testOutboxPublishesWhatCommitted[Tx any](t *testing.T, h *handle[Tx]) {
	box := newOutbox(t, h)
	failure := errors.New("no")
	err := h.receiver.InTx(t.Context(), func(ctx context.Context, tx Tx) error {
		return errors.Join(failure, box.Publish(ctx, tx, outbox.Event{Topic: "orders", Payload: []byte(`"rolled back"`)}))
	})
	if !errors.Is(err, failure) {
		t.Fatal(err)
	}
	key := everonce.Key{Scope: everonce.ScopeOf("orders"), ID: "7"}
	for range 2 { // the same operation twice: one effect, and one event of each kind
		_, err := everonce.Transact(t.Context(), h.receiver, key, func(ctx context.Context, tx Tx) (string, error) {
			if err := h.exec(ctx, tx, "INSERT INTO effects (name) VALUES ('7')"); err != nil {
				return "", err
			}
			return "7", box.Publish(ctx, tx,
				outbox.Event{Topic: "orders", Key: "7", Type: "placed", Headers: map[string]string{"traceparent": "00-1"}, Payload: []byte(`{"id":7}`)},
				outbox.Event{Topic: "orders", Key: "7", Type: "paid", ContentType: "application/octet-stream", Payload: []byte{0, 255}},
			)
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	to := newSink()
	relaying(t, box, to.publisher(), nil)
	events := to.awaitCount(t, 2)
	if e := events[0]; e.Type != "placed" || e.Key != "7" || e.Topic != "orders" || e.Headers["traceparent"] != "00-1" || string(e.Payload) != `{"id":7}` || e.ContentType != "application/json" || e.Attempts != 1 {
		t.Errorf("the first is %+v", e)
	}
	if e := events[1]; e.Type != "paid" || string(e.Payload) != "\x00\xff" || e.ID == events[0].ID {
		t.Errorf("the second is %+v", e)
	}
	if id := h.receiver.DownstreamKey(key, `"outbox/orders"/""#1`); events[0].ID != id {
		t.Errorf("the ID is %s, not the operation's %s", events[0].ID, id)
	}
	h.settled(t, box)
	if n := len(to.awaitCount(t, 2)); n != 2 {
		t.Errorf("%d events were published", n)
	}
}

// settled waits until nothing waits to be published.
func (h *handle[Tx]) settled(t testing.TB, box *outbox.Outbox[Tx]) backlog.Stats {
	t.Helper()
	deadline := time.After(hung)
	for {
		s, err := box.Backlog().Stats(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if s.Waiting == 0 && s.InHand == 0 {
			return s
		}
		select {
		case <-time.After(5 * time.Millisecond):
		case <-deadline:
			t.Fatalf("still %+v", s)
		}
	}
}

func TestOutboxManyInOrder(t *testing.T) {
	onAll(t, testOutboxManyInOrder[pgx.Tx], testOutboxManyInOrder[*sql.Tx])
}

// Two relays share the work, and each key keeps its order.
func testOutboxManyInOrder[Tx any](t *testing.T, h *handle[Tx]) {
	box := newOutbox(t, h)
	const calls, each, keys = 3, 100, 7
	n := 0
	for range calls {
		var events []outbox.Event
		for range each {
			key := ""
			if n%3 != 0 {
				key = fmt.Sprint("k", n%keys)
			}
			events = append(events, outbox.Event{Topic: fmt.Sprint("t", n%2), Key: key, Payload: fmt.Append(nil, n)})
			n++
		}
		h.inTx(t, func(ctx context.Context, tx Tx) error { return box.Publish(ctx, tx, events...) })
	}
	to := newSink()
	for range 2 {
		relaying(t, box, to.publisher(), &outbox.RelayOptions{Batch: 20})
	}
	events := to.awaitCount(t, n)
	last := map[string]int{}
	seen := map[string]bool{}
	for _, e := range events {
		if seen[e.ID] {
			t.Fatalf("%s came twice", e.ID)
		}
		seen[e.ID] = true
		var at int
		if _, err := fmt.Sscan(string(e.Payload), &at); err != nil {
			t.Fatal(err)
		}
		if e.Key == "" {
			continue
		}
		if line := e.Topic + e.Key; at <= last[line] {
			t.Fatalf("%s: %d came after %d", line, at, last[line])
		} else {
			last[line] = at
		}
	}
	if s := h.settled(t, box); s != (backlog.Stats{}) {
		t.Errorf("left: %+v", s)
	}
}

// A destination asks for a longer delay than the relay's own backoff.
func TestOutboxRetryAfter(t *testing.T) {
	t.Parallel()
	h := onSQLite(t)
	box := newOutbox(t, h)
	h.inTx(t, func(ctx context.Context, tx *sql.Tx) error {
		return box.Publish(ctx, tx, outbox.Event{ID: "busy", Topic: "a"}, outbox.Event{ID: "down", Topic: "b"}, outbox.Event{ID: "soon", Topic: "c"})
	})
	to := newSink()
	to.answer = func(e *outbox.Event) error {
		switch err := errors.New("not now"); e.ID {
		case "busy":
			return outbox.RetryAfter(err, time.Hour)
		case "down":
			return outbox.RetryAfter(fmt.Errorf("%w: %w", outbox.ErrUnavailable, err), time.Hour)
		default:
			return outbox.RetryAfter(err, time.Millisecond)
		}
	}
	verdicts := make(chan outbox.Report, 3)
	var mu sync.Mutex
	after := map[string]time.Duration{}
	stop := relaying(t, box, to.publisher(), &outbox.RelayOptions{Retry: consume.RetryPolicy{Min: time.Minute}, Observe: func(_ context.Context, e *outbox.Event, v outbox.Report) {
		mu.Lock()
		after[e.ID] = v.After
		mu.Unlock()
		verdicts <- v
	}})
	for range 3 {
		<-verdicts
	}
	stop()
	if after["busy"] != time.Hour || after["down"] != time.Hour || after["soon"] < 30*time.Second || after["soon"] > time.Minute {
		t.Errorf("they are tried again after %v", after)
	}
	entries, err := box.Backlog().List(t.Context(), backlog.Filter{ID: "busy"})
	if err != nil || len(entries) != 1 || time.Until(entries[0].DueAt) < 50*time.Minute {
		t.Errorf("%+v, %v", entries, err)
	}
}
