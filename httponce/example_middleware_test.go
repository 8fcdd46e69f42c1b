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

// A charge is sent twice, under one key, and made once. The same key of another account is another charge.
func ExampleMiddleware() {
	receiver, err := everonce.NewReceiver(memstore.New(nil), everonce.Refuse, nil) // in production: pgxstore, sqlitestore, …
	if err != nil {
		panic(err)
	}
	account := func(r *http.Request) (string, error) { // a service asks its authentication
		name, _, ok := r.BasicAuth()
		if !ok {
			return "", errors.New("not signed in")
		}
		return name, nil
	}
	protect, err := httponce.Middleware(receiver, account, &httponce.Options{Route: httponce.Route{Required: true}})
	if err != nil {
		panic(err)
	}
	charges := 0
	mux := http.NewServeMux()
	mux.Handle("POST /charges", protect(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		charges++
		w.WriteHeader(http.StatusCreated)
		fmt.Fprintf(w, "receipt-%d", charges)
	})))

	for _, name := range []string{"alice", "alice", "bob"} {
		r := httptest.NewRequest(http.MethodPost, "/charges", strings.NewReader(`{"cents": 1200}`))
		r.SetBasicAuth(name, "secret")
		r.Header.Set("Idempotency-Key", "order-7")
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, r)
		fmt.Printf("%s: %d %s, replayed: %q\n", name, w.Code, w.Body, w.Header().Get("Idempotent-Replayed"))
	}
	// Output:
	// alice: 201 receipt-1, replayed: ""
	// alice: 201 receipt-1, replayed: "true"
	// bob: 201 receipt-2, replayed: ""
}
