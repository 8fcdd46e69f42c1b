package httponce_test

import (
	"fmt"
	"net/http"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/httponce"
	"github.com/everonce/everonce/store/memstore"
)

// Some SDKs, like Square's, have the key in the body.
func ExampleRoute_keyJSON() {
	receiver, err := everonce.NewReceiver(memstore.New(nil), everonce.Refuse, nil)
	if err != nil {
		panic(err)
	}
	account := httponce.Unscoped()
	protect, err := httponce.Middleware(receiver, account, &httponce.Options{Route: httponce.Route{
		Required: true,
		KeyJSON:  "/idempotency_key",
	}})
	if err != nil {
		panic(err)
	}
	h := protect(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Println("charged")
		w.WriteHeader(http.StatusCreated)
	}))
	for range 2 {
		res := send(h, "POST", "/v2/payments", `{"idempotency_key":"7da7f51e","amount":1000}`, "Content-Type", "application/json")
		fmt.Printf("%d %q\n", res.StatusCode, res.Header.Get("Idempotent-Replayed"))
	}
	// Output:
	// charged
	// 201 ""
	// 201 "true"
}
