package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/httponce"
	"github.com/everonce/everonce/store/sqlitestore"
)

// request sends a request to a handler that answers 500, protected in a SQLite store, and writes the answer.
func request(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: request FILE KEY")
	}
	store, err := sqlitestore.Open(ts.MkAbs(args[0]), nil)
	ts.Check(err)
	recv, err := everonce.NewReceiver(store, everonce.Refuse, nil)
	ts.Check(err)
	protect, err := httponce.Middleware(recv, httponce.Unscoped(), nil)
	ts.Check(err)
	r := httptest.NewRequest(http.MethodPost, "/payments", strings.NewReader("{}"))
	r.Header.Set("Idempotency-Key", args[1])
	w := httptest.NewRecorder()
	protect(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) })).ServeHTTP(w, r)
	fmt.Fprintln(ts.Stdout(), w.Code, w.Header().Get("Idempotent-Replayed"), w.Header().Get("Location"), w.Body)
	ts.Check(store.Close())
}
