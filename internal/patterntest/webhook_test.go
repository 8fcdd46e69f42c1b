package patterntest

import (
	"context"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/everonce/everonce/consume"
	"github.com/everonce/everonce/outbox"
	"github.com/everonce/everonce/outbox/webhook"
)

// A relay waits as long as a service asks for.
func TestOutboxToWebhooks(t *testing.T) {
	t.Parallel()
	h := onSQLite(t)
	box := newOutbox(t, h)
	busy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "3600")
		w.WriteHeader(http.StatusTooManyRequests)
	}))
	t.Cleanup(busy.Close)
	to, err := webhook.New(webhook.Endpoint{URL: busy.URL}, &webhook.Options{AllowPrivate: true})
	must(t, err)
	h.publish(t, box, outbox.Event{Topic: "a"})
	verdicts := make(chan outbox.Report, 100)
	relaying(t, box, to, &outbox.RelayOptions{Retry: consume.RetryPolicy{Min: time.Minute}, Observe: func(_ context.Context, _ *outbox.Event, v outbox.Report) { verdicts <- v }})
	if v := first(t, verdicts); v.After < time.Hour {
		t.Errorf("it is tried again after %v", v.After)
	}
}

// One endpoint that is silent delays no other: neither when it is found out, nor while it is paused. It gets its own when it answers.
func TestASilentWebhookDelaysNoOther(t *testing.T) {
	t.Parallel()
	h := onSQLite(t)
	box := newOutbox(t, h)
	awake := make(chan struct{})
	var late atomic.Int64
	silent := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-awake:
			late.Add(1)
		case <-r.Context().Done():
		}
	}))
	t.Cleanup(silent.Close)
	came := make(chan time.Time, 10)
	well := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { came <- time.Now() }))
	t.Cleanup(well.Close)
	to, err := webhook.NewFunc(func(_ context.Context, e *outbox.Event) (webhook.Endpoint, error) {
		return webhook.Endpoint{URL: map[string]string{"silent": silent.URL, "well": well.URL}[e.Type]}, nil
	}, &webhook.Options{AllowPrivate: true, Timeout: time.Second})
	must(t, err)
	const many = 150
	events := make([]outbox.Event, many+1)
	for i := range many {
		events[i] = outbox.Event{Topic: "a", Type: "silent"}
	}
	events[many] = outbox.Event{Topic: "a", Type: "well"}
	h.publish(t, box, events...)
	began := time.Now()
	relaying(t, box, to, &outbox.RelayOptions{Poll: 50 * time.Millisecond, PublishTimeout: 3 * time.Second})
	for i := range 3 {
		at := first(t, came)
		if took := at.Sub(began); took > 2*time.Second { // a good part of it is for a machine that is busy
			t.Errorf("event %d came after %v", i, took)
		}
		time.Sleep(time.Until(began.Add(1500 * time.Millisecond))) // past the timeout of what went to the silent one first
		began = time.Now()
		h.publish(t, box, outbox.Event{Topic: "a", Type: "well", Key: "k"})
	}
	close(awake)
	must(t, within(limited(t), "all came", func() (bool, error) { return late.Load() >= many, nil }))
}

// Events with the same key keep their order, though they go to several endpoints of which the first does not answer.
func TestOrderAcrossDestinations(t *testing.T) {
	t.Parallel()
	h := onSQLite(t)
	box, to := newOutbox(t, h), newSink()
	var up atomic.Bool
	to.answer = func(e *outbox.Event) error {
		if e.Type == "a" && !up.Load() {
			return outbox.ErrUnavailable
		}
		return nil
	}
	h.publish(t, box, outbox.Event{ID: "1", Topic: "t", Type: "a", Key: "k"}, outbox.Event{ID: "2", Topic: "t", Type: "b", Key: "k"}, outbox.Event{ID: "3", Topic: "t", Type: "b"},
		outbox.Event{ID: "4", Topic: "t", Type: "a", Key: "k"})
	relaying(t, box, byType{to.publisher()}, &outbox.RelayOptions{Retry: quick})
	if events := to.awaitCount(t, 1); events[0].ID != "3" {
		t.Errorf("%s came first", events[0].ID)
	}
	up.Store(true)
	var ids []string
	for _, e := range to.awaitCount(t, 4) {
		ids = append(ids, e.ID)
	}
	if want := []string{"3", "1", "2", "4"}; !slices.Equal(ids, want) {
		t.Errorf("they came as %v, want %v", ids, want)
	}
}

// byType publishes to the destination that is an event's type.
type byType struct{ outbox.Publisher }

func (byType) Destination(_ context.Context, e *outbox.Event) string { return e.Type }
