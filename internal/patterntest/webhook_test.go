package patterntest

import (
	"context"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
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

// One endpoint that is silent delays no other: neither before it is found out, nor while one request tries whether it
// answers. It gets its own when it answers.
func TestASilentWebhookDelaysNoOther(t *testing.T) {
	t.Parallel()
	h := onSQLite(t)
	box := newOutbox(t, h)
	var foundOut atomic.Bool
	var late atomic.Int64
	gone, awake, tried := make(chan struct{}), make(chan struct{}), make(chan struct{}, 1000)
	silent := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		if !foundOut.Load() {
			<-gone
			panic(http.ErrAbortHandler)
		}
		tried <- struct{}{}
		<-awake
		late.Add(1)
	}))
	t.Cleanup(silent.Close)
	came := make(chan bool, 10)
	well := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { came <- true }))
	t.Cleanup(well.Close)
	to, err := webhook.NewFunc(func(_ context.Context, e *outbox.Event) (webhook.Endpoint, error) {
		return webhook.Endpoint{URL: map[string]string{"silent": silent.URL, "well": well.URL}[e.Type]}, nil
	}, &webhook.Options{AllowPrivate: true, Timeout: time.Hour})
	must(t, err)
	const many = 150
	events := make([]outbox.Event, many+1)
	for i := range many {
		events[i] = outbox.Event{Topic: "a", Type: "silent"}
	}
	events[many] = outbox.Event{Topic: "a", Type: "well"}
	h.publish(t, box, events...)
	relaying(t, box, to, &outbox.RelayOptions{
		Poll: 50 * time.Millisecond, PublishTimeout: 2 * time.Hour,
		Observe: func(_ context.Context, e *outbox.Event, _ outbox.Report) {
			if e.Type == "silent" {
				foundOut.Store(true) // it is paused, and one request will try it
			}
		},
	})
	giveUp, wake := sync.OnceFunc(func() { close(gone) }), sync.OnceFunc(func() { close(awake) })
	t.Cleanup(func() { giveUp(); wake() })
	first(t, came)
	giveUp()
	first(t, tried)
	for range 3 {
		h.publish(t, box, outbox.Event{Topic: "a", Type: "well", Key: "k"})
		first(t, came)
	}
	wake()
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
