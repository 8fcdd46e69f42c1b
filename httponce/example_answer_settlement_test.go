package httponce_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/httponce"
	"github.com/everonce/everonce/store/memstore"
)

// A payment service charged, and answered 500. Somebody has looked into the ledger: it was done, and this is its
// answer.
func ExampleAnswer_Settlement() {
	recv, err := everonce.NewReceiver(memstore.New(nil), everonce.Refuse, nil)
	if err != nil {
		panic(err)
	}
	protect, err := httponce.Middleware(recv, httponce.Unscoped(), nil)
	if err != nil {
		panic(err)
	}
	h := protect(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) }))
	pay := func() {
		r := httptest.NewRequest(http.MethodPost, "/payments", strings.NewReader("{}"))
		r.Header.Set("Idempotency-Key", "order-7")
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		body, _ := io.ReadAll(w.Body) //nolint:errcheck // it is in memory
		fmt.Printf("%d %q %q\n", w.Code, w.Header().Get("Location"), body)
	}
	pay()
	found := httponce.Answer{Status: http.StatusCreated, Header: http.Header{"Location": {"/payments/7"}}, Body: []byte("paid")}
	settlement, err := found.Settlement()
	if err != nil {
		panic(err)
	}
	key := everonce.Key{Scope: everonce.ScopeOf("everybody", "POST", "/payments"), ID: "order-7"}
	if err := recv.Settle(context.Background(), key, settlement); err != nil {
		panic(err)
	}
	pay()
	// Output:
	// 500 "" ""
	// 201 "/payments/7" "paid"
}
