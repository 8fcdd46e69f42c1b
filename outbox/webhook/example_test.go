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

// What an outbox.Relay does with a publisher: each event is a signed request. The example's receiver is in the own network.
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

// Each customer has an endpoint. What a customer may choose must not lead into the own network: by default it does not.
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
