package webhook_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/everonce/everonce/outbox"
	"github.com/everonce/everonce/outbox/webhook"
)

// An outbox.Relay calls a publisher as here: each event is a signed request. The example's receiver is in a private
// network.
func ExampleNew() {
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Println(r.Header.Get("Idempotency-Key"), r.Header.Get("Ce-Type"), r.Header.Get("Webhook-Signature") != "")
		w.Header().Set("Retry-After", "120")
		w.WriteHeader(http.StatusTooManyRequests)
	}))
	defer receiver.Close()

	publisher, err := webhook.New(webhook.Endpoint{
		URL:     receiver.URL + "/hooks",
		Secrets: []string{"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"},
	}, &webhook.Options{AllowPrivate: true})
	if err != nil {
		fmt.Println(err)
		return
	}
	err = errors.Join(publisher.Publish(context.Background(), []outbox.Event{{ID: "e-1", Topic: "orders", Type: "order.placed", Payload: []byte(`{"id":7}`)}})...)
	fmt.Println(err)
	// Output:
	// "e-1" order.placed true
	// webhook: 127.0.0.1 answered 429 Too Many Requests
}

// A service takes what a publisher sends as a message, for an inbox say: it has all that the event said of itself.
func ExampleReadMessage() {
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		m, err := webhook.ReadMessage(r, 1<<20)
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(m.ID, m.Type, m.EventSource, m.OrderKey, string(m.Body))
	}))
	defer receiver.Close()

	publisher, err := webhook.New(webhook.Endpoint{URL: receiver.URL}, &webhook.Options{AllowPrivate: true})
	if err != nil {
		fmt.Println(err)
		return
	}
	publisher.Publish(context.Background(), []outbox.Event{{ID: "e-1", Topic: "orders", Key: "order-7", Type: "order.placed", Payload: []byte(`{"id":7}`)}})
	// Output: e-1 order.placed orders order-7 {"id":7}
}

// Each customer has an endpoint. A URL that a customer chooses must not lead into the private network: by default it
// cannot.
func ExampleNewFunc() {
	inside := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { fmt.Println("reached") }))
	defer inside.Close()
	endpoints := map[string]webhook.Endpoint{"alice": {URL: inside.URL}}

	publisher, err := webhook.NewFunc(func(_ context.Context, e *outbox.Event) (webhook.Endpoint, error) {
		to, ok := endpoints[e.Key]
		if !ok {
			return to, errors.New("this customer has no endpoint")
		}
		return to, nil
	}, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, err := range publisher.Publish(context.Background(), []outbox.Event{{ID: "e-1", Topic: "orders", Key: "alice"}, {ID: "e-2", Topic: "orders", Key: "bob"}}) {
		fmt.Println(err != nil)
	}
	// Output:
	// true
	// true
}
