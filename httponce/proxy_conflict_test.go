package httponce_test

import (
	"net/http"
	"testing"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/httponce"
)

// A service that honours keys itself, and says that another attempt runs or that the outcome is unknown, has not given its answer for
// good: what a retry gets is for the service to say. Its own conflicts are answers.
func TestProxyBeforeAServiceThatHonoursKeys(t *testing.T) {
	h, status := newHeld(201), 500
	inner := newService(t, setup{
		opts: httponce.Options{Route: httponce.Route{Fingerprint: httponce.Fingerprint{IgnoreHost: true}}},
		handle: func(w http.ResponseWriter, r *http.Request) {
			switch r.Header.Get("Idempotency-Key") {
			case "running":
				h.ServeHTTP(w, r)
			case "taken":
				w.Header().Set("Content-Type", "application/problem+json")
				answers(409, `{"title":"The seat is taken"}`)(w, r)
			default:
				answers(status, "paid")(w, r)
			}
		},
	})
	began := make(chan struct{}, 9)
	inner.during = func() { began <- struct{}{} }
	srv := newProxy(t, newUpstream(t, inner.ServeHTTP), nil, nil)
	send := func(key string, want int, mark string) {
		t.Helper()
		if got, header, body := post(t, srv, "/payments", key, "{}"); got != want || header.Get("Idempotent-Replayed") != mark {
			t.Errorf("%s: %d %v %s, want %d, marked %q", key, got, header, body, want, mark)
		}
	}

	first := make(chan got)
	go func() { first <- inner.post("running") }() // around the proxy
	<-began
	send("running", 409, "")
	send("running", 409, "")
	close(h.free)
	<-first
	send("running", 201, "true") // by the service
	send("running", 201, "true")

	inner.post("lost")
	send("lost", 409, "")
	if err := inner.recv.Settle(t.Context(), keyOf("lost"), everonce.Settlement{Verdict: everonce.SettleNotDone}); err != nil {
		t.Fatal(err)
	}
	status = 201
	send("lost", 201, "")

	send("taken", 409, "")
	send("taken", 409, "true")
	if n := inner.ran(); n != 4 {
		t.Errorf("the service was called %d times, want 4", n)
	}
}
