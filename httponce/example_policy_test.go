package httponce_test

import (
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/httponce"
	"github.com/everonce/everonce/store/memstore"
)

// A service publishes how it treats keys: how long it remembers them above all.
func ExamplePolicy() {
	receiver, err := everonce.NewReceiver(memstore.New(nil), everonce.Refuse, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	options := &httponce.Options{Routes: map[string]httponce.Route{
		"POST /payments": {Required: true, Lifetime: everonce.ForFinance()},
	}}
	policy, err := httponce.Policy(receiver, options) // the options of the middleware
	if err != nil {
		fmt.Println(err)
		return
	}
	mux := http.NewServeMux()
	mux.Handle("GET /idempotency", policy)

	var published struct {
		Header string
		Routes []struct {
			Pattern             string
			Required            bool
			Retention, Remember string
		}
	}
	if err := json.NewDecoder(send(mux, http.MethodGet, "/idempotency", "").Body).Decode(&published); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(published.Header)
	for _, r := range published.Routes {
		fmt.Printf("%q required=%v %s + %s\n", r.Pattern, r.Required, r.Retention, r.Remember)
	}
	// Output:
	// Idempotency-Key
	// "" required=false P1D + P1D
	// "POST /payments" required=true P90D + P275D
}
