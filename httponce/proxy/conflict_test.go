package proxy_test

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/httponce"
)

// A service that honours keys itself, and says that another attempt runs or that the outcome is unknown, has not given
// its answer for good: what a retry gets is for the service to say. Its own conflicts are answers.
func TestProxyBeforeAServiceThatHonoursKeys(t *testing.T) {
	free, began := make(chan struct{}), make(chan struct{}, 9)
	var calls atomic.Int64
	status := 500
	recv := newReceiver(t, everonce.Refuse)
	protect, err := httponce.Middleware(recv, httponce.Unscoped(), &httponce.Options{Route: httponce.Route{Compare: httponce.Compare{IgnoreHost: true}, Wait: -1}})
	if err != nil {
		t.Fatal(err)
	}
	inner := protect(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		calls.Add(1)
		began <- struct{}{}
		switch r.Header.Get("Idempotency-Key") {
		case "running":
			<-free
			w.WriteHeader(http.StatusCreated)
		case "taken":
			w.Header().Set("Content-Type", "application/problem+json")
			w.WriteHeader(http.StatusConflict)
			io.WriteString(w, `{"title":"The seat is taken"}`)
		default:
			w.WriteHeader(status)
		}
	}))
	direct := func(key string) { send(inner, "POST", "/payments", "{}", "Idempotency-Key", key) }
	srv := newProxy(t, newUpstream(t, inner.ServeHTTP), nil, nil)
	through := func(key string, want int, mark string) {
		t.Helper()
		if got, header, body := post(t, srv, "/payments", key, "{}"); got != want || header.Get("Idempotent-Replayed") != mark {
			t.Errorf("%s: %d %v %s, want %d, marked %q", key, got, header, body, want, mark)
		}
	}

	first := make(chan struct{})
	go func() {
		defer close(first)
		direct("running")
	}()
	<-began
	through("running", 409, "")
	through("running", 409, "")
	close(free)
	<-first
	through("running", 201, "true") // by the service
	through("running", 201, "true")

	direct("lost")
	through("lost", 409, "")
	if err := recv.Settle(t.Context(), everonce.Key{Scope: everonce.ScopeOf("everybody", "POST", "/payments"), ID: "lost"}, everonce.Settlement{Verdict: everonce.SettleNotDone}); err != nil {
		t.Fatal(err)
	}
	status = 201
	through("lost", 201, "")

	through("taken", 409, "")
	through("taken", 409, "true")
	if n := calls.Load(); n != 4 {
		t.Errorf("the service was called %d times, want 4", n)
	}
}

// Such a service may have its own members in its problems, under names that other problems have too.
func TestProxyReadsProblemsWithMembersOfTheirOwn(t *testing.T) {
	for _, more := range []string{`"error":"Conflict"`, `"error":{"code":409}`, `"code":409`, `"status":"409"`} {
		u, calls := saysLater(t, 409, "", `{"title":"A request is outstanding for this Idempotency-Key",`+more+`}`)
		srv := newProxy(t, u, nil, nil)
		for n, want := range []int{409, 409, 201, 201} {
			if got, header, text := post(t, srv, "/payments", "k", "{}"); got != want || (header.Get("Idempotent-Replayed") != "") != (n == 3) {
				t.Errorf("%s, request %d: %d %v %q, want %d", more, n+1, got, header, text, want)
			}
		}
		if calls.Load() != 3 {
			t.Errorf("%s: the service was called %d times, want 3", more, calls.Load())
		}
	}
}

// A temporary answer of such a service is not final, whatever a Save makes of its status, even if it is compressed. A
// conflict frees the key. Whether a 503 did something is unknown: under Reexecute the service gets the request again,
// under Refuse it does not.
func TestProxyBeforeAServiceThatSaysLater(t *testing.T) {
	for _, tc := range []struct {
		status      int
		name, title string
	}{
		{409, "in-progress", "A request is outstanding for this Idempotency-Key"},
		{409, "outcome-unknown", "The outcome of this operation is unknown"},
		{503, "still-running", "The operation is still running"},
		{503, "store-unavailable", "The record of operations is not available"},
		{503, "busy", "Too many large requests are being worked on"},
		{503, "record-unreadable", "The record of this operation cannot be read"},
		{503, "not-done", "The operation was not done"},
		{503, "commit-lost", "It is not known yet whether the operation was done"},
		{502, "upstream-unreachable", "The service cannot be reached"},
		{502, "upstream-lost", "The service gave no answer"},
		{504, "upstream-timeout", "The service gave no answer in time"},
		{508, "upstream-loop", "The service leads back to this proxy"},
	} {
		text := fmt.Sprintf(`{"type":"https://a.example/problems/%s","title":%q,"status":%d}`, tc.name, tc.title, tc.status)
		for coding, body := range map[string]string{"": text, "gzip": packed(t, text), "X-GZip": packed(t, text)} {
			for _, profile := range []httponce.Profile{httponce.ProfileDefault, httponce.ProfileStripe} {
				for _, policy := range []everonce.Policy{everonce.Refuse, everonce.Reexecute} {
					u, calls := saysLater(t, tc.status, coding, body)
					srv := newProxy(t, u, &httponce.Options{Profile: profile, Route: httponce.Route{Policy: policy}}, nil)
					asked := tc.status == 409 || policy == everonce.Reexecute
					for n, want := range []int{tc.status, tc.status, 201, 201} {
						if n > 0 && !asked {
							want = 409
						}
						got, header, text := post(t, srv, "/payments", "k", "{}", "Accept-Encoding", "gzip")
						if marked := header.Get("Idempotent-Replayed") != ""; got != want || marked != (want == 201 && n == 3) || n == 0 && text != body {
							t.Errorf("%s, coding %q, profile %v, %v, request %d: %d %v %q, want %d", tc.name, coding, profile, policy, n+1, got, header, text, want)
						}
					}
					if want := map[bool]int64{true: 3, false: 1}[asked]; calls.Load() != want {
						t.Errorf("%s, coding %q, profile %v, %v: the service was called %d times, want %d", tc.name, coding, profile, policy, calls.Load(), want)
					}
				}
			}
		}
	}
}

// The proxy asks a service for no coding in which it could not read such a problem: with brotli or zstd the problem
// would become the final answer. Without a key the proxy reads nothing, and asks for all codings. It does not ask for a
// coding that the client refuses (q=0).
func TestProxyAsksForWhatItCanRead(t *testing.T) {
	for takes, want := range map[string]string{
		"":                            "",
		"br":                          "identity",
		"*":                           "identity",
		"gzip":                        "gzip",
		"br,gzip":                     "gzip",
		"deflate,GZIP , zstd, br;q=1": "gzip",
		"gzip,identity;q=0":           "gzip",
		"br,gzip;q=0.5":               "identity",
		"br,gzip;q=0":                 "identity",
	} {
		var asked []string
		calls := 0
		u := newUpstream(t, func(w http.ResponseWriter, r *http.Request) {
			asked = r.Header["Accept-Encoding"]
			if calls++; calls > 2 {
				w.WriteHeader(http.StatusCreated)
				return
			}
			if strings.Contains(strings.Join(asked, ","), "br") {
				w.Header().Set("Content-Encoding", "br") // which the proxy cannot read
			}
			w.Header().Set("Content-Type", "application/problem+json")
			w.WriteHeader(http.StatusConflict)
			io.WriteString(w, `{"title":"A request is outstanding for this Idempotency-Key"}`)
		})
		srv := newProxy(t, u, nil, nil)
		srv.Client().Transport.(*http.Transport).DisableCompression = true // which would ask for gzip
		var headers []string
		if takes != "" {
			first, second, _ := strings.Cut(takes, ",")
			if headers = []string{"Accept-Encoding", first}; second != "" {
				headers = append(headers, "Accept-Encoding", second)
			}
		}
		post(t, srv, "/", "", "{}", headers...)
		if got := strings.Join(asked, ","); got != takes {
			t.Errorf("without a key the service was asked for %q, and not for %q", got, takes)
		}
		for _, status := range []int{409, 201} {
			if got, _, _ := post(t, srv, "/", "k", "{}", headers...); got != status || len(asked) > 1 || strings.Join(asked, "") != want {
				t.Errorf("to %q: %d, and the service was asked for %q, want %d and %q", takes, got, asked, status, want)
			}
		}
	}
}

// saysLater returns an upstream that gives that problem for its answer twice, and then 201; and how often it was
// called.
func saysLater(t *testing.T, status int, coding, body string) (*url.URL, *atomic.Int64) {
	t.Helper()
	calls := new(atomic.Int64)
	return newUpstream(t, func(w http.ResponseWriter, _ *http.Request) {
		if calls.Add(1) > 2 {
			w.WriteHeader(http.StatusCreated)
			return
		}
		w.Header().Set("Content-Type", "application/problem+json")
		if coding != "" {
			w.Header().Set("Content-Encoding", coding)
		}
		w.WriteHeader(status)
		io.WriteString(w, body)
	}), calls
}

// packed returns a text as gzip has it.
func packed(t *testing.T, text string) string {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	if _, err := z.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// A service without keys may use our words in its own problems. Only the whole problem, by type and title, says that it
// recognises keys. Otherwise it would get a request with an unknown outcome again.
func TestProxyTakesNoForeignProblemForOurs(t *testing.T) {
	for body, status := range map[string]int{
		`{"type":"https://bank.example/problems/outcome-unknown","title":"The bank did not answer"}`: 409,
		`{"title":"The outcome of this operation is unknown"}`:                                       409,
		`{"type":"https://bank.example/problems/still-running","title":"Payment still running"}`:     503,
		`{"title":"The operation is still running"}`:                                                 503,
		`{"title":"A request is outstanding for this Idempotency-Key"}`:                              503,
		`{"type":"https://bank.example/problems/not-done","title":"Not done"}`:                       503,
		`{"type":"https://bank.example/problems/upstream-lost","title":"The bank is lost"}`:          502,
		`{"title":"The service gave no answer in time"}`:                                             504,
	} {
		u, calls := saysLater(t, status, "", body)
		srv := newProxy(t, u, nil, nil)
		for range 2 {
			post(t, srv, "/payments", "k", "{}")
		}
		if n := calls.Load(); n != 1 {
			t.Errorf("%d %s: the service was called %d times", status, body, n)
		}
		srv = newProxy(t, u, &httponce.Options{Profile: httponce.ProfileStripe}, nil)
		calls.Store(0)
		for _, mark := range []string{"", "true"} { // it is an answer as any other
			if got, header, _ := post(t, srv, "/payments", "k", "{}"); got != status || header.Get("Idempotent-Replayed") != mark || calls.Load() != 1 {
				t.Errorf("%d %s, where all is saved: %d %v, %d calls", status, body, got, header, calls.Load())
			}
		}
	}
}

// Nor is anything a problem that does not say that it is one by its type: a 409 is kept then, as any.
func TestProxyTakesNoJSONForAProblem(t *testing.T) {
	const text = `{"title":"A request is outstanding for this Idempotency-Key"}`
	for kind, kept := range map[string]bool{"application/json": true, "application/problem+json": false} {
		u := newUpstream(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", kind)
			w.WriteHeader(http.StatusConflict)
			_, _ = io.WriteString(w, text)
		})
		srv := newProxy(t, u, nil, nil)
		post(t, srv, "/payments", "k", "{}")
		if status, header, body := post(t, srv, "/payments", "k", "{}"); status != http.StatusConflict || body != text || (header.Get("Idempotent-Replayed") == "true") != kept {
			t.Errorf("%s: %d %v %s, want it kept: %v", kind, status, header, body, kept)
		}
	}
}

// A problem that is too long to be looked at is an answer as any other, and comes whole.
func TestProxyPassesALongProblemWhole(t *testing.T) {
	text := `{"title":"A request is outstanding for this Idempotency-Key","detail":"` + strings.Repeat("x", 100_000) + `"}`
	for coding, text := range map[string]string{"": text, "gzip": packed(t, text)} {
		u, calls := saysLater(t, 409, coding, text)
		srv := newProxy(t, u, nil, nil)
		for _, mark := range []string{"", "true"} {
			if status, header, body := post(t, srv, "/payments", "k", "{}", "Accept-Encoding", "gzip"); status != 409 || body != text || header.Get("Idempotent-Replayed") != mark || calls.Load() != 1 {
				t.Errorf("coding %q: %d %v, %d bytes, %d calls", coding, status, header, len(body), calls.Load())
			}
		}
	}
}
