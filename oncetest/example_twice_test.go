package oncetest_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/oncetest"
	"github.com/everonce/everonce/store/memstore"
)

// Reporter prints what an example reports. In a test, pass the test's t instead.
type Reporter struct{ testing.TB }

// Helper implements [testing.TB].
func (Reporter) Helper() {}

// Errorf implements [testing.TB].
func (Reporter) Errorf(format string, args ...any) { fmt.Printf("FAIL: "+format+"\n", args...) }

// Context implements [testing.TB].
func (Reporter) Context() context.Context { return context.Background() }

// Cleanup implements [testing.TB].
func (Reporter) Cleanup(func()) {}

// newShop takes orders, each once, and counts them.
func newShop() (handler http.Handler, orders *int) {
	recv, err := everonce.NewReceiver(memstore.New(nil), everonce.Refuse, nil)
	if err != nil {
		panic(err)
	}
	orders = new(int)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		key := everonce.Key{Scope: "POST /orders", ID: r.Header.Get("Idempotency-Key")}
		res, err := everonce.Do(r.Context(), recv, key, func(context.Context, *everonce.Attempt) (int, error) {
			*orders++
			return *orders, nil
		})
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		w.WriteHeader(http.StatusCreated)
		fmt.Fprintf(w, "order %d", res.Value)
	}), orders
}

// order is what a suite has already: it orders, and looks at the answer.
func order(handler http.Handler, key string) {
	r := httptest.NewRequest(http.MethodPost, "/orders", strings.NewReader("1 book"))
	r.Header.Set("Idempotency-Key", key)
	w := httptest.NewRecorder()
	handler.ServeHTTP(w, r)
	fmt.Println(w.Code, w.Body)
}

// The suite orders as before, and every order of it arrives twice.
func ExampleTwiceHandler() {
	var t Reporter // in a test: its *testing.T

	handler, orders := newShop()
	handler = oncetest.TwiceHandler(t, handler, nil)
	order(handler, "key-1")
	order(handler, "key-2")
	fmt.Println("orders:", *orders)

	// A handler that counts every arrival is found out.
	arrived := 0
	order(oncetest.TwiceHandler(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		arrived++
		fmt.Fprintf(w, "order %d", arrived)
	}), nil), "key-1")
	// Output:
	// 201 order 1
	// 201 order 2
	// orders: 2
	// FAIL: oncetest: POST /orders was sent twice: the bodies differ: "order 1", and "order 2"
	// 200 order 2
}

// A suite that talks to a server gets a client that sends everything twice.
func ExampleTwiceTransport() {
	var t Reporter // in a test: its *testing.T

	handler, orders := newShop()
	server := httptest.NewServer(handler)
	defer server.Close()
	client := &http.Client{Transport: oncetest.TwiceTransport(t, http.DefaultTransport, nil)}

	r, err := http.NewRequestWithContext(context.Background(), http.MethodPost, server.URL+"/orders", strings.NewReader("1 book"))
	if err != nil {
		panic(err)
	}
	r.Header.Set("Idempotency-Key", "key-1")
	res, err := client.Do(r)
	if err != nil {
		panic(err)
	}
	defer res.Body.Close() //nolint:errcheck // it has been read
	body, err := io.ReadAll(res.Body)
	fmt.Println(res.StatusCode, string(body), err)
	fmt.Println("orders:", *orders)
	// Output:
	// 201 order 1 <nil>
	// orders: 1
}

// A consumer gets each message again, as from a broker that did not see the acknowledgement.
func ExampleTwiceFunc() {
	ctx := context.Background()
	var t Reporter // in a test: its *testing.T

	recv, err := everonce.NewReceiver(memstore.New(nil), everonce.Refuse, nil)
	if err != nil {
		panic(err)
	}
	mails := 0
	consume := oncetest.TwiceFunc(t, func(ctx context.Context, message string) error {
		_, err := everonce.Do(ctx, recv, everonce.Key{Scope: "mails", ID: message}, func(context.Context, *everonce.Attempt) (string, error) {
			mails++
			return "sent", nil
		})
		return err
	}, nil)
	fmt.Println(consume(ctx, "welcome-7"), "mails:", mails)

	// A set of what was seen, in place of an answer, is found out.
	seen := map[string]bool{}
	consume = oncetest.TwiceFunc(t, func(_ context.Context, message string) error {
		if seen[message] {
			return errors.New("duplicate")
		}
		seen[message] = true
		return nil
	}, nil)
	fmt.Println(consume(ctx, "welcome-7"))
	// Output:
	// <nil> mails: 1
	// FAIL: oncetest: a message was delivered twice: the first delivery returned no error, and the second "duplicate"
	// duplicate
}
