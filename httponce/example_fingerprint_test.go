package httponce_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/httponce"
	"github.com/everonce/everonce/store/memstore"
)

// This client writes its bodies anew for every attempt, with the time in it. The order of the fields and the time do
// not matter; the amount does.
func ExampleFingerprint() {
	recv, err := everonce.NewReceiver(memstore.New(nil), everonce.Refuse, nil)
	if err != nil {
		panic(err)
	}
	protect, err := httponce.Middleware(recv, httponce.Unscoped(), &httponce.Options{
		Route: httponce.Route{Compare: httponce.Compare{
			JSONExcept: []string{"/sentAt"},
			Headers:    []string{"X-Currency"},
		}},
	})
	if err != nil {
		panic(err)
	}
	h := protect(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusCreated) }))
	for _, body := range []string{
		`{"amount": 9007199254740993, "sentAt": "10:00"}`,
		`{"sentAt": "10:01", "amount": 9007199254740993}`,
		`{"sentAt": "10:02", "amount": 9007199254740992}`,
	} {
		r := httptest.NewRequest(http.MethodPost, "/payments", strings.NewReader(body))
		r.Header.Set("Idempotency-Key", "order-7")
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("X-Currency", "EUR")
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		fmt.Printf("%d %q\n", w.Code, w.Header().Get("Idempotent-Replayed"))
	}
	// Output:
	// 201 ""
	// 201 "true"
	// 422 ""
}
