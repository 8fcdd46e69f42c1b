package main

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/httponce"
	"github.com/everonce/everonce/store/sqlitestore"
)

// request sends a request to a handler, protected in a SQLite store, and writes the answer. If the key is "mail", the
// handler sends a mail whose outcome is unknown, and answers 500. If the key is "json", bodies are compared by their
// meaning.
func request(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: request FILE KEY")
	}
	store, err := sqlitestore.Open(context.Background(), ts.MkAbs(args[0]), nil)
	ts.Check(err)
	recv, err := everonce.NewReceiver(store, everonce.Refuse, nil)
	ts.Check(err)
	protect, err := httponce.Middleware(recv, httponce.Unscoped(), &httponce.Options{Route: httponce.Route{Compare: httponce.Compare{JSON: args[1] == "json"}}})
	ts.Check(err)
	r := httptest.NewRequest(http.MethodPost, "/payments", strings.NewReader("{}"))
	r.Header.Set("Idempotency-Key", args[1])
	w := httptest.NewRecorder()
	protect(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if a, ok := everonce.AttemptFrom(r.Context()); ok && args[1] == "mail" {
			_, err := everonce.Step(r.Context(), a, "mail", func(context.Context) (string, error) { return "", errWork })
			fmt.Fprintln(ts.Stderr(), err)
		}
		w.WriteHeader(http.StatusInternalServerError)
	})).ServeHTTP(w, r)
	fmt.Fprintln(ts.Stdout(), w.Code, w.Header().Get("Idempotent-Replayed"), w.Header().Get("Location"), w.Body)
	ts.Check(store.Close())
}
