package proxy_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/httponce"
	"github.com/everonce/everonce/store/memstore"
)

// newReceiver returns a receiver on a new store.
func newReceiver(t testing.TB, policy everonce.Policy) *everonce.Receiver {
	t.Helper()
	recv, err := everonce.NewReceiver(memstore.New(nil), policy, nil)
	if err != nil {
		t.Fatal(err)
	}
	return recv
}

// send sends one request to a handler. The headers are name, value, name, value.
func send(h http.Handler, method, target, body string, headers ...string) *http.Response {
	r := httptest.NewRequest(method, target, strings.NewReader(body))
	for i := 0; i < len(headers); i += 2 {
		r.Header.Add(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Result()
}

func bodyOf(t testing.TB, r *http.Response) string {
	t.Helper()
	b, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// protected returns a handler behind a new middleware.
func protected(t testing.TB, opts *httponce.Options, h http.HandlerFunc) http.Handler {
	t.Helper()
	protect, err := httponce.Middleware(newReceiver(t, everonce.Refuse), httponce.Unscoped(), opts)
	if err != nil {
		t.Fatal(err)
	}
	return protect(h)
}
