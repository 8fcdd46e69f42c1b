package httponce_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/httponce"
	"github.com/everonce/everonce/store/memstore"
)

// This service takes only UUIDs as keys: a client that counts from 1 would get its own old answers.
func ExampleRoute_checkKey() {
	uuid := regexp.MustCompile(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)
	recv, err := everonce.NewReceiver(memstore.New(nil), everonce.Refuse, nil)
	if err != nil {
		panic(err)
	}
	protect, err := httponce.Middleware(recv, httponce.Unscoped(), &httponce.Options{Route: httponce.Route{
		CheckKey: func(key string) error {
			if !uuid.MatchString(key) {
				return errors.New("it must be a UUID, in lower case")
			}
			return nil
		},
	}})
	if err != nil {
		panic(err)
	}
	h := protect(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "charged") }))
	for _, key := range []string{"1", "8e03978e-40d5-43dd-bc93-6894a57f9324"} {
		r := httptest.NewRequest(http.MethodPost, "/charges", strings.NewReader("{}"))
		r.Header.Set("Idempotency-Key", key)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		fmt.Println(w.Code, w.Body)
	}
	// Output:
	// 400 {"type":"https://github.com/everonce/everonce/blob/main/docs/reference/problems/invalid-key.md","title":"Idempotency-Key is invalid","status":400,"detail":"Idempotency-Key: it must be a UUID, in lower case."}
	// 200 charged
}
