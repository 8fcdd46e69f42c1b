package httponce_test

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/httponce"
	"github.com/everonce/everonce/store/memstore"
)

// Observe decides nothing: if it panics, the client still gets its answer, and a handler's own panic continues.
func TestAPanicOfObserveChangesNothing(t *testing.T) {
	recv, err := everonce.NewReceiver(memstore.New(nil), everonce.Refuse, nil)
	if err != nil {
		t.Fatal(err)
	}
	var logs bytes.Buffer
	protect, err := httponce.Middleware(recv, httponce.Unscoped(), &httponce.Options{
		Log: slog.New(slog.NewTextHandler(&logs, nil)), Observe: func(context.Context, httponce.Served) { panic("no") },
	})
	if err != nil {
		t.Fatal(err)
	}
	handler := protect(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/aborts" {
			panic(http.ErrAbortHandler)
		}
		w.WriteHeader(http.StatusCreated)
		io.WriteString(w, "paid")
	}))
	server := httptest.NewServer(handler)
	defer server.Close()
	for _, mark := range []string{"", "true"} {
		r, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL+"/payments", strings.NewReader("{}"))
		r.Header.Set("Idempotency-Key", "k")
		res, err := server.Client().Do(r)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(res.Body)
		res.Body.Close()
		if err != nil || res.StatusCode != http.StatusCreated || string(body) != "paid" || res.Header.Get("Idempotent-Replayed") != mark {
			t.Errorf("%d %q (%v), marked %q; want it marked %q", res.StatusCode, body, err, res.Header.Get("Idempotent-Replayed"), mark)
		}
	}
	func() {
		defer func() {
			if p := recover(); p != http.ErrAbortHandler { //nolint:errorlint // the value itself
				t.Errorf("it panicked with %v", p)
			}
		}()
		r := httptest.NewRequest(http.MethodPost, "/aborts", strings.NewReader("{}"))
		r.Header.Set("Idempotency-Key", "a")
		handler.ServeHTTP(httptest.NewRecorder(), r)
	}()
	if n := strings.Count(logs.String(), "Observe panicked"); n != 3 {
		t.Errorf("%d panics in the log: %s", n, logs.String())
	}
}
