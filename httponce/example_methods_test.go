package httponce_test

import (
	"fmt"
	"net/http"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/httponce"
	"github.com/everonce/everonce/store/memstore"
)

// A PUT that charges, and a DELETE that refunds, are not idempotent, although many clients send them again.
func ExampleRoute_methods() {
	receiver, err := everonce.NewReceiver(memstore.New(nil), everonce.Refuse, nil)
	if err != nil {
		panic(err)
	}
	account := httponce.Unscoped()
	protect, err := httponce.Middleware(receiver, account, &httponce.Options{Route: httponce.Route{
		Methods: []string{"POST", "PATCH", "PUT", "DELETE"},
	}})
	if err != nil {
		panic(err)
	}
	h := protect(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Println("executed:", r.Method)
		w.WriteHeader(http.StatusNoContent)
	}))
	for _, method := range []string{"PUT", "PUT", "DELETE", "DELETE"} {
		res := send(h, method, "/orders/7", "", "Idempotency-Key", "order-7")
		fmt.Printf("%d %q\n", res.StatusCode, res.Header.Get("Idempotent-Replayed"))
	}
	// Output:
	// executed: PUT
	// 204 ""
	// 204 "true"
	// executed: DELETE
	// 204 ""
	// 204 "true"
}
