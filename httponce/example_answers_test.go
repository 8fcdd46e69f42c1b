package httponce_test

import (
	"fmt"
	"io"
	"net/http"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/httponce"
	"github.com/everonce/everonce/store/memstore"
)

// A gateway that refused the connection has charged nothing. The answer is 502, which alone would mean unknown, but
// NotDone frees the key.
func ExampleNotDone() {
	recv, err := everonce.NewReceiver(memstore.New(nil), everonce.Refuse, nil)
	if err != nil {
		panic(err)
	}
	protect, err := httponce.Middleware(recv, httponce.Unscoped(), nil)
	if err != nil {
		panic(err)
	}
	gatewayIsUp := false
	pay := protect(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if !gatewayIsUp {
			httponce.NotDone(w)
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		w.WriteHeader(http.StatusCreated)
	}))
	fmt.Println(send(pay, "POST", "/payments", "{}", "Idempotency-Key", "order-7").StatusCode)
	gatewayIsUp = true
	fmt.Println(send(pay, "POST", "/payments", "{}", "Idempotency-Key", "order-7").StatusCode)
	// Output:
	// 502
	// 201
}

// The time that the handler took is the first client's affair.
func ExampleHeaderPolicy() {
	recv, err := everonce.NewReceiver(memstore.New(nil), everonce.Refuse, nil)
	if err != nil {
		panic(err)
	}
	protect, err := httponce.Middleware(recv, httponce.Unscoped(), &httponce.Options{
		Route: httponce.Route{Header: httponce.HeaderPolicy{Deny: []string{"Server-Timing"}}},
	})
	if err != nil {
		panic(err)
	}
	pay := protect(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Server-Timing", "db;dur=53")
		w.Header().Set("Set-Cookie", "seen=1")
		w.Header().Set("Location", "/payments/1")
		w.WriteHeader(http.StatusCreated)
		_, _ = io.WriteString(w, "paid")
	}))
	for range 2 {
		res := send(pay, "POST", "/payments", "{}", "Idempotency-Key", "order-7")
		h := res.Header
		fmt.Printf("%d %q %q %q %q\n", res.StatusCode, h.Get("Location"), h.Get("Server-Timing"), h.Get("Set-Cookie"), h.Get("Idempotent-Replayed"))
	}
	// Output:
	// 201 "/payments/1" "db;dur=53" "seen=1" ""
	// 201 "/payments/1" "" "" "true"
}
