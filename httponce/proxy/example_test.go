package proxy_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/httponce"
	"github.com/everonce/everonce/httponce/proxy"
	"github.com/everonce/everonce/store/memstore"
)

// A service that knows nothing of keys, behind a proxy that does.
func ExampleNew() {
	payments := 0
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		payments++
		w.WriteHeader(http.StatusCreated)
		fmt.Fprintf(w, "payment %d", payments)
	}))
	defer service.Close()

	upstream, err := url.Parse(service.URL)
	if err != nil {
		panic(err)
	}
	receiver, err := everonce.NewReceiver(memstore.New(nil), everonce.Refuse, nil)
	if err != nil {
		panic(err)
	}
	protect, err := httponce.Middleware(receiver, httponce.Unscoped(), nil)
	if err != nil {
		panic(err)
	}
	passOn, err := proxy.New(upstream, nil)
	if err != nil {
		panic(err)
	}
	front := httptest.NewServer(protect(passOn))
	defer front.Close()

	for range 2 {
		r, err := http.NewRequest(http.MethodPost, front.URL+"/payments", strings.NewReader("amount=1"))
		if err != nil {
			panic(err)
		}
		r.Header.Set("Idempotency-Key", "8e03978e-40d5-43dd-bc93-6894a57f9324")
		res, err := http.DefaultClient.Do(r)
		if err != nil {
			panic(err)
		}
		text, err := io.ReadAll(res.Body)
		if err != nil {
			panic(err)
		}
		res.Body.Close()
		fmt.Printf("%d %s, replayed: %q\n", res.StatusCode, text, res.Header.Get("Idempotent-Replayed"))
	}
	// Output:
	// 201 payment 1, replayed: ""
	// 201 payment 1, replayed: "true"
}
