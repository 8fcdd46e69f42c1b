package httponce_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/httponce"
	"github.com/everonce/everonce/store/memstore"
)

// The key of a form is one of its fields.
func ExampleRoute_keyFrom() {
	receiver, err := everonce.NewReceiver(memstore.New(nil), everonce.Refuse, nil)
	if err != nil {
		panic(err)
	}
	provider := httponce.Unscoped()
	protect, err := httponce.Middleware(receiver, provider, &httponce.Options{Route: httponce.Route{
		Required: true,
		KeyFrom: func(_ *http.Request, body []byte) (string, error) {
			form, err := url.ParseQuery(string(body))
			if err != nil {
				return "", errors.New("the body is not a form") // the client gets this text
			}
			return form.Get("MessageSid"), nil
		},
	}})
	if err != nil {
		panic(err)
	}
	h := protect(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Println("received")
		w.WriteHeader(http.StatusNoContent)
	}))
	for range 2 {
		res := send(h, "POST", "/messages", "MessageSid=SM7da7&Body=Hello")
		fmt.Printf("%d %q\n", res.StatusCode, res.Header.Get("Idempotent-Replayed"))
	}
	// Output:
	// received
	// 204 ""
	// 204 "true"
}
