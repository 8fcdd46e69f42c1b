package httponce_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/httponce"
	"github.com/everonce/everonce/store/memstore"
)

// One middleware around a mux, with settings for some of its routes.
func ExampleOptions() {
	recv, err := everonce.NewReceiver(memstore.New(nil), everonce.Refuse, nil)
	if err != nil {
		panic(err)
	}
	payments := httponce.Route{Required: true, Wait: 8 * time.Second, Lifetime: everonce.ForFinance()}
	protect, err := httponce.Middleware(recv, httponce.Unscoped(), &httponce.Options{
		Routes: map[string]httponce.Route{
			"POST /payments":              payments,
			"POST /payments/{id}/refunds": payments,
			"POST /uploads":               {MaxBody: 1 << 30, BodyTimeout: 10 * time.Minute},
			"POST /search":                {Methods: []string{}}, // changes nothing: exempt
		},
	})
	if err != nil {
		panic(err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "done") })
	h := protect(mux)
	for _, path := range []string{"/payments", "/payments/7/refunds", "/uploads", "/search"} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodPost, path, strings.NewReader("{}")))
		fmt.Println(path, w.Code)
	}
	// Output:
	// /payments 400
	// /payments/7/refunds 400
	// /uploads 200
	// /search 200
}
