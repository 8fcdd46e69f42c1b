package client_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"time"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/httponce"
	"github.com/everonce/everonce/httponce/client"
	"github.com/everonce/everonce/store/memstore"
)

// exampleAPI is an API that charges, and whose first answers are lost.
func exampleAPI(lost int) (server *httptest.Server, charges *int) {
	charges = new(int)
	receiver, err := everonce.NewReceiver(memstore.New(nil), everonce.Refuse, nil)
	if err != nil {
		panic(err)
	}
	protect, err := httponce.Middleware(receiver, httponce.Unscoped(), nil)
	if err != nil {
		panic(err)
	}
	charge := protect(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		*charges++
		w.WriteHeader(http.StatusCreated)
		fmt.Fprintf(w, "receipt-%d", *charges)
	}))
	return httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if lost--; lost >= 0 {
			charge.ServeHTTP(httptest.NewRecorder(), r) // done, and the answer is lost
			panic(http.ErrAbortHandler)
		}
		charge.ServeHTTP(w, r)
	})), charges
}

// Two answers are lost; the third attempt gets the first one's answer, for it has the same key.
func ExampleNewTransport() {
	api, charges := exampleAPI(2)
	defer api.Close()

	transport, err := client.NewTransport(nil, &client.Options{
		Backoff: time.Millisecond,
		OnRetry: func(_ context.Context, r client.Retry) { fmt.Println("attempt", r.Attempt, "had no answer") },
	})
	if err != nil {
		panic(err)
	}
	client := &http.Client{Transport: transport}
	resp, err := client.Post(api.URL, "application/json", strings.NewReader(`{"cents": 1200}`))
	if err != nil {
		panic(err)
	}
	defer resp.Body.Close()
	receipt, err := io.ReadAll(resp.Body)
	fmt.Println(resp.StatusCode, string(receipt), err)
	fmt.Println("charges:", *charges)
	// Output:
	// attempt 1 had no answer
	// attempt 2 had no answer
	// 201 receipt-1 <nil>
	// charges: 1
}

// The key is the order's: another call, be it by another process, is the same operation.
func ExampleWithKey() {
	api, charges := exampleAPI(0)
	defer api.Close()

	for range 2 {
		transport, err := client.NewTransport(nil, nil)
		if err != nil {
			panic(err)
		}
		ctx := client.WithKey(context.Background(), "charge-order-7")
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, api.URL, strings.NewReader(`{"cents": 1200}`))
		if err != nil {
			panic(err)
		}
		resp, err := (&http.Client{Transport: transport}).Do(req)
		if err != nil {
			panic(err)
		}
		resp.Body.Close()
		fmt.Printf("%s, replayed: %t\n", resp.Status, resp.Header.Get("Idempotent-Replayed") == "true")
	}
	fmt.Println("charges:", *charges)
	// Output:
	// 201 Created, replayed: false
	// 201 Created, replayed: true
	// charges: 1
}

// A server that cannot be reached: the error says how often it was tried, and why it failed.
func ExampleRetryError() {
	dead := httptest.NewServer(http.NotFoundHandler())
	dead.Close()

	transport, err := client.NewTransport(nil, &client.Options{MaxAttempts: 3, Backoff: time.Millisecond})
	if err != nil {
		panic(err)
	}
	_, err = (&http.Client{Transport: transport}).Post(dead.URL, "text/plain", strings.NewReader("charge")) //nolint:bodyclose // the call fails
	if e, ok := errors.AsType[*client.RetryError](err); ok {
		fmt.Println("attempts:", e.Attempts)
		fmt.Println("refused:", strings.Contains(e.Err.Error(), "connection refused"))
	}
	// Output:
	// attempts: 3
	// refused: true
}

// The default list is a copy: take it, and change it. This API answers 500 before it has done anything.
func ExampleDefaultRetryStatuses() {
	statuses := append(client.DefaultRetryStatuses(), http.StatusInternalServerError)
	_, err := client.NewTransport(nil, &client.Options{RetryStatuses: statuses})
	fmt.Println(statuses, err)
	// Output: [408 425 429 502 503 504 500] <nil>
}

// One place that names every operation by its content, and an API that takes no quoted keys, says itself whether
// another attempt helps, and may redirect an operation to other hosts that it owns.
func ExampleOptions() {
	transport, err := client.NewTransport(nil, &client.Options{
		RawKey: true,
		KeyFunc: func(r *http.Request) (string, error) {
			order := r.Header.Get("X-Order")
			if order == "" {
				return "", errors.New("a charge without an order")
			}
			return "charge-" + order, nil
		},
		RetryIf: func(resp *http.Response, _ error, retry bool) bool {
			if resp != nil && resp.Header.Get("Stripe-Should-Retry") != "" {
				return resp.Header.Get("Stripe-Should-Retry") == "true"
			}
			return retry
		},
		FollowTo: func(_, to *url.URL) bool {
			return to.Scheme == "https" && strings.HasSuffix(to.Hostname(), ".pay.example")
		},
	})
	if err != nil {
		panic(err)
	}
	client := &http.Client{Transport: transport}
	_, err = client.Post("https://api.pay.example/charges", "text/plain", strings.NewReader("charge")) //nolint:bodyclose // the call fails
	fmt.Println(err)
	// Output: Post "https://api.pay.example/charges": client: Options.KeyFunc: a charge without an order
}
