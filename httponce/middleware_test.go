package httponce_test

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

// newReceiver returns a receiver on a store of its own.
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

// A request that comes twice is handled once, and answered twice alike.
func TestTwice(t *testing.T) {
	protect, err := httponce.Middleware(newReceiver(t, everonce.Refuse), httponce.Unscoped(), nil)
	if err != nil {
		t.Fatal(err)
	}
	calls := 0
	h := protect(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		calls++
		w.Header().Set("Location", "/payments/1")
		w.WriteHeader(http.StatusCreated)
		if _, err := io.Copy(w, r.Body); err != nil {
			t.Error(err)
		}
	}))
	for i, marker := range []string{"", "true", "true"} {
		res := send(h, "POST", "/payments", `{"amount":1}`, "Idempotency-Key", `"k1"`)
		if res.StatusCode != http.StatusCreated || bodyOf(t, res) != `{"amount":1}` || res.Header.Get("Location") != "/payments/1" || res.Header.Get("Idempotent-Replayed") != marker {
			t.Errorf("answer %d: %d %v", i, res.StatusCode, res.Header)
		}
	}
	if calls != 1 {
		t.Errorf("the handler was called %d times, want 1", calls)
	}
	res := send(h, "POST", "/payments", `{"amount":2}`, "Idempotency-Key", "k1")
	if res.StatusCode != http.StatusUnprocessableEntity {
		t.Errorf("another body: %d, want 422", res.StatusCode)
	}
}
