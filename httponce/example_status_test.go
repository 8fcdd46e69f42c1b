package httponce_test

import (
	"fmt"
	"io"
	"net/http"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/httponce"
	"github.com/everonce/everonce/store/memstore"
)

// A client that has lost an answer polls for it, by its key.
func ExampleStatus() {
	receiver, err := everonce.NewReceiver(memstore.New(nil), everonce.Refuse, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	account := func(r *http.Request) (string, error) { return r.Header.Get("X-Account"), nil }
	protect, err := httponce.Middleware(receiver, account, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	status, err := httponce.Status(receiver, account, "POST /payments", nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	mux := http.NewServeMux()
	mux.Handle("POST /payments", protect(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Location", "/payments/1")
		w.WriteHeader(http.StatusCreated)
		fmt.Fprint(w, "paid")
	})))
	mux.Handle("GET /payments/status/{key}", status)

	ask := func(account string) {
		res := send(mux, http.MethodGet, "/payments/status/order-7", "", "X-Account", account)
		text, err := io.ReadAll(res.Body)
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Print(res.StatusCode, " ", string(text))
	}
	ask("acme")
	send(mux, http.MethodPost, "/payments", "", "Idempotency-Key", "order-7", "X-Account", "acme")
	ask("acme")
	ask("somebody else")
	// Output:
	// 404 {"state":"not_seen"}
	// 200 {"state":"done","answer":{"status":201,"headers":{"Location":["/payments/1"]},"body":"paid"}}
	// 404 {"state":"not_seen"}
}
