package cloudeventsonce_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/cloudevents/sdk-go/v2/binding"
	"github.com/cloudevents/sdk-go/v2/event"
	cehttp "github.com/cloudevents/sdk-go/v2/protocol/http"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/consume"
	"github.com/everonce/everonce/outbox"
	"github.com/everonce/everonce/outbox/cloudeventsonce"
	"github.com/everonce/everonce/outbox/webhook"
)

const source = "https://example.com/orders"

var modes = map[string]cloudeventsonce.Mode{
	"structured": cloudeventsonce.Structured, "binary, HTTP": cloudeventsonce.BinaryHTTP, "binary, AMQP": cloudeventsonce.BinaryAMQP,
	"binary, Kafka": cloudeventsonce.BinaryKafka,
}

func placed() outbox.Event {
	return outbox.Event{
		ID: "e-1", Topic: "orders", Key: "order-7", Type: "order.placed", ContentType: "application/json", Payload: []byte(`{"id": 7, "note": "<b>"}`),
		Headers: map[string]string{"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "x-other": "kept"}, CreatedAt: time.Date(2026, 1, 2, 3, 4, 5, 678_000, time.UTC),
	}
}

// publishing returns a publisher, and what it gave to the next one.
func publishing(t *testing.T, mode cloudeventsonce.Mode) (outbox.Publisher, *[]outbox.Event) {
	t.Helper()
	var got []outbox.Event
	p, err := cloudeventsonce.New(outbox.PublisherFunc(func(_ context.Context, events []outbox.Event) []error {
		got = append(got, events...)
		return nil
	}), source, mode)
	if err != nil {
		t.Fatal(err)
	}
	return p, &got
}

func published(t *testing.T, p outbox.Publisher, events ...outbox.Event) {
	t.Helper()
	if err := errors.Join(p.Publish(t.Context(), events)...); err != nil {
		t.Fatal(err)
	}
}

// The SDK's parser reads the published event from a request.
func TestTheSDKReadsIt(t *testing.T) {
	var got *event.Event
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		var err error
		if got, err = binding.ToEvent(r.Context(), cehttp.NewMessageFromHttpRequest(r)); err != nil {
			t.Error(err)
		}
	}))
	defer s.Close()
	hook, err := webhook.New(webhook.Endpoint{URL: s.URL}, &webhook.Options{AllowPrivate: true})
	if err != nil {
		t.Fatal(err)
	}
	text, bytes, odd, bare := placed(), placed(), placed(), outbox.Event{ID: "e-2", Topic: "orders"}
	text.ContentType, text.Payload = "text/plain; charset=utf-8", []byte("a \"text\"\n")
	bytes.ContentType, bytes.Payload = "application/octet-stream", []byte{0, 255}
	odd.Payload = []byte("{no JSON")
	for _, mode := range []cloudeventsonce.Mode{cloudeventsonce.Structured, cloudeventsonce.BinaryHTTP} {
		p, err := cloudeventsonce.New(hook, source, mode)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range []outbox.Event{placed(), text, bytes, odd, bare} {
			got = nil
			published(t, p, e)
			if got == nil || got.Validate() != nil {
				t.Fatalf("%d: %s: nothing valid came: %v", mode, e.ContentType, got)
			}
			kind := e.Type
			if kind == "" {
				kind = e.Topic
			}
			if got.ID() != e.ID || got.Source() != source || got.Type() != kind || got.Subject() != e.Key || !got.Time().Equal(e.CreatedAt) ||
				got.DataContentType() != e.ContentType || string(got.Data()) != string(e.Payload) {
				t.Errorf("%d: %v", mode, got)
			}
			for name, want := range map[string]string{"partitionkey": e.Key, "traceparent": e.Headers["traceparent"]} {
				if value, _ := got.Extensions()[name].(string); value != want {
					t.Errorf("%d: %s is %q, want %q", mode, name, value, want)
				}
			}
		}
	}
}

// A consumer knows an event by source and id, and one that is published again as the same.
func TestConsumersKnowIt(t *testing.T) {
	for name, mode := range modes {
		p, got := publishing(t, mode)
		published(t, p, placed())
		published(t, p, placed())
		first, again := (*got)[0], (*got)[1]
		key, err := consume.CloudEvent()(first.Message())
		if err != nil || key != "https%3A//example.com/orders:e-1" {
			t.Errorf("%s: the key is %q, %v", name, key, err)
		}
		if string(first.Payload) != string(again.Payload) || first.ID != "e-1" || first.Key != "order-7" || first.Headers["x-other"] != "kept" {
			t.Errorf("%s: %+v, then %+v", name, first, again)
		}
		if before := placed(); len(before.Headers) != 2 {
			t.Errorf("%s: the event was changed", name)
		}
	}
}

// JSON remains JSON: a consumer finds its values.
func TestStructured(t *testing.T) {
	p, got := publishing(t, cloudeventsonce.Structured)
	published(t, p, placed())
	e := (*got)[0]
	var ce struct {
		SpecVersion, Time string
		Data              struct{ ID int }
	}
	if err := json.Unmarshal(e.Payload, &ce); err != nil || ce.SpecVersion != "1.0" || ce.Data.ID != 7 || ce.Time != "2026-01-02T03:04:05.000678Z" || e.ContentType != "application/cloudevents+json" {
		t.Errorf("%v: %s %s", err, e.ContentType, e.Payload)
	}
}

// In HTTP an attribute has only visible ASCII.
func TestBinaryHTTPIsEncoded(t *testing.T) {
	p, got := publishing(t, cloudeventsonce.BinaryHTTP)
	e := placed()
	e.Key = "Jürgen \"50%\""
	published(t, p, e)
	if subject := (*got)[0].Headers["ce-subject"]; subject != "J%C3%BCrgen%20%2250%25%22" {
		t.Errorf("%q", subject)
	}
}

// An event that cannot be a CloudEvent is set aside, and those behind it with the same key are not sent.
func TestWhatIsNoCloudEvent(t *testing.T) {
	for name, mode := range modes {
		p, got := publishing(t, mode)
		bad, behind, other := placed(), placed(), placed()
		bad.ContentType, behind.ID, other.ID, other.Key = "no/media/type", "e-2", "e-3", "order-8"
		errs := p.Publish(t.Context(), []outbox.Event{bad, behind, other})
		permanent, ok := errors.AsType[*everonce.PermanentError](errs[0])
		if !ok || permanent.Code != "not_a_cloudevent" || errs[1] == nil || errs[2] != nil || len(*got) != 1 {
			t.Errorf("%s: %v", name, errs)
		}
	}
	next := outbox.PublisherFunc(func(context.Context, []outbox.Event) []error { return nil })
	for _, err := range []error{
		second(cloudeventsonce.New(nil, source, cloudeventsonce.Structured)), second(cloudeventsonce.New(next, "", cloudeventsonce.Structured)),
		second(cloudeventsonce.New(next, ":", cloudeventsonce.Structured)), second(cloudeventsonce.New(next, source, 0)), second(cloudeventsonce.New(next, source, 5)),
	} {
		if !errors.Is(err, everonce.ErrInvalidArgument) {
			t.Error(err)
		}
	}
}

func second(_ outbox.Publisher, err error) error { return err }

// The next publisher's errors are returned for its events.
func TestErrorsOfTheNext(t *testing.T) {
	failure := errors.New("no")
	p, err := cloudeventsonce.New(outbox.PublisherFunc(func(_ context.Context, events []outbox.Event) []error {
		return []error{nil, failure}
	}), source, cloudeventsonce.Structured)
	if err != nil {
		t.Fatal(err)
	}
	bad, good, fails := placed(), placed(), placed()
	bad.ContentType, bad.Key, good.Key, fails.Key = "no/media/type", "", "", ""
	if errs := p.Publish(t.Context(), []outbox.Event{good, bad, fails}); errs[0] != nil || errs[1] == nil || !errors.Is(errs[2], failure) {
		t.Error(errs)
	}
}
