package httponce_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/httponce"
	"github.com/everonce/everonce/store/memstore"
)

// The callers of this service are one party: a key is the same for all senders.
func ExampleUnscoped() {
	recv, err := everonce.NewReceiver(memstore.New(nil), everonce.Refuse, nil)
	if err != nil {
		panic(err)
	}
	protect, err := httponce.Middleware(recv, httponce.Unscoped(), nil)
	if err != nil {
		panic(err)
	}
	orders := 0
	h := protect(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		orders++
		fmt.Fprintf(w, "order %d", orders)
	}))
	for _, key := range []string{"a", "a", "b"} {
		r := httptest.NewRequest(http.MethodPost, "/orders", strings.NewReader("{}"))
		r.Header.Set("Idempotency-Key", key)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		fmt.Println(w.Body)
	}
	// Output:
	// order 1
	// order 1
	// order 2
}

// The account that authentication, around the middleware, has put into the context.
func ExamplePrincipal() {
	type account struct{}
	principal := func(r *http.Request) (string, error) {
		name, ok := r.Context().Value(account{}).(string)
		if !ok {
			return "", errors.New("not authenticated")
		}
		return name, nil
	}
	recv, err := everonce.NewReceiver(memstore.New(nil), everonce.Refuse, nil)
	if err != nil {
		panic(err)
	}
	protect, err := httponce.Middleware(recv, principal, nil)
	if err != nil {
		panic(err)
	}
	h := protect(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "done") }))
	r := httptest.NewRequest(http.MethodPost, "/orders", strings.NewReader("{}"))
	r.Header.Set("Idempotency-Key", "a")
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	fmt.Println(w.Code)
	// Output: 403
}

// The API key of this service is its principal, and does not get into the store.
func ExampleHashed() {
	apiKey := func(r *http.Request) (string, error) { return r.Header.Get("X-Api-Key"), nil }
	recv, err := everonce.NewReceiver(memstore.New(nil), everonce.Refuse, nil)
	if err != nil {
		panic(err)
	}
	protect, err := httponce.Middleware(recv, httponce.Hashed(apiKey), nil)
	if err != nil {
		panic(err)
	}
	h := protect(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "charged") }))
	for _, caller := range []string{"sk-4Vq1", "sk-4Vq1", "sk-7Lm0", ""} {
		r := httptest.NewRequest(http.MethodPost, "/charges", strings.NewReader("{}"))
		r.Header.Set("Idempotency-Key", "a")
		r.Header.Set("X-Api-Key", caller)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		fmt.Printf("%q: %d, replayed %q\n", caller, w.Code, w.Header().Get("Idempotent-Replayed"))
	}
	// Output:
	// "sk-4Vq1": 200, replayed ""
	// "sk-4Vq1": 200, replayed "true"
	// "sk-7Lm0": 200, replayed ""
	// "": 403, replayed ""
}
