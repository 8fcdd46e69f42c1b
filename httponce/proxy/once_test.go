package proxy_test

import (
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/everonce/everonce/httponce"
	"github.com/everonce/everonce/httponce/proxy"
)

// http.Transport treats a request with Idempotency-Key and no body as replayable, and silently sends it again
// when a connection that it used before dies. The proxy does not: one attempt is on the wire once, and
// its outcome is unknown.
func TestProxySendsOneAttemptOnce(t *testing.T) {
	for name, tc := range map[string]struct{ method, key, header, body string }{
		"POST with a body":           {"POST", "k", "Idempotency-Key", "amount=1"},
		"POST without a body":        {"POST", "k", "Idempotency-Key", ""},
		"DELETE without a body":      {"DELETE", "k", "Idempotency-Key", ""},
		"GET with a key":             {"GET", "k", "Idempotency-Key", ""},
		"the key in another header":  {"POST", "k", "X-Idempotency-Key", ""},
		"a method that takes no key": {"PUT", "", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			answer := func(n int, _ wireRequest) (string, bool) {
				if n == 2 { // on the same connection: read, perhaps worked on, and gone
					return "", true
				}
				return wireCreated, false
			}
			headers := []string{"Idempotency-Key", "beside"} // for the method that takes none
			if tc.header != "" {
				headers = []string{tc.header, tc.key}
			}
			route := httponce.Route{Methods: []string{"POST", "DELETE", "GET"}}
			u := newWireUpstream(t, answer)
			srv := newProxy(t, u.url, &httponce.Options{KeyHeader: tc.header, Route: route}, &proxy.Options{KeyHeader: tc.header})
			if status, _, _ := post(t, srv, "/first", "", ""); status != http.StatusCreated {
				t.Fatalf("the first request: %d", status)
			}
			status, _, body := do(t, srv, tc.method, "/second", "", tc.body, headers...)
			if status != http.StatusBadGateway || !strings.Contains(body, "upstream-lost") {
				t.Errorf("a request whose connection died: %d %s, want 502 upstream-lost", status, body)
			}
			if tc.key != "" {
				status, _, body = do(t, srv, tc.method, "/second", "", tc.body, headers...)
				if status != http.StatusConflict || !strings.Contains(body, "outcome-unknown") {
					t.Errorf("its repetition: %d %s, want 409 outcome-unknown", status, body)
				}
			}
			if n := len(u.seen()); n != 2 {
				t.Errorf("the upstream got %d requests, want 2: %v", n, u.seen())
			}
		})
	}
}

// net/http alone, in the same setting, sends twice: otherwise the test above would prove nothing.
func TestReverseProxyAloneSendsTwice(t *testing.T) {
	u := newWireUpstream(t, func(n int, _ wireRequest) (string, bool) {
		if n == 2 {
			return "", true
		}
		return wireCreated, false
	})
	srv := newBareProxy(t, u.url, &http.Transport{})
	post(t, srv, "/first", "", "")
	if status, _, _ := post(t, srv, "/second", "k", ""); status != http.StatusCreated || len(u.seen()) != 3 {
		t.Errorf("%d, and the upstream got %d requests; want 201 and 3", status, len(u.seen()))
	}
}

// An empty body has its length on the wire, once, and no chunks: some servers read none.
func TestProxyEmptyBodyOnTheWire(t *testing.T) {
	u := newWireUpstream(t, func(int, wireRequest) (string, bool) { return wireCreated, false })
	srv := newProxy(t, u.url, nil, nil)
	for _, method := range []string{"POST", "PATCH", "PUT", "DELETE", "GET"} {
		do(t, srv, method, "/"+method, "k"+method, "")
		seen := u.seen()
		head := strings.ToLower(seen[len(seen)-1].head)
		want := 1
		if method == "GET" || method == "DELETE" {
			want = 0
		}
		if n := strings.Count(head, "\r\ncontent-length: 0\r\n"); n != want || strings.Count(head, "content-length") != want || strings.Contains(head, "transfer-encoding") {
			t.Errorf("%s: %q; want Content-Length: 0 %d times, and no chunks", method, head, want)
		}
	}
}

// A body that came in chunks, and was read before the key was claimed, goes out with its length: a small one, and one
// that is not handed over in memory.
func TestProxyChunkedBodyHasALength(t *testing.T) {
	for _, size := range []int{1, 8, 64 << 10, 64<<10 + 1, 200 << 10} {
		u := newWireUpstream(t, func(int, wireRequest) (string, bool) { return wireCreated, false })
		srv := newProxy(t, u.url, nil, nil)
		body := strings.Repeat("x", size)
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, srv.URL+"/", struct{ *strings.Reader }{strings.NewReader(body)})
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Idempotency-Key", "k")
		res, err := srv.Client().Do(r)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		if seen := u.seen(); len(seen) != 1 || seen[0].body != body || !strings.Contains(seen[0].head, "\r\nContent-Length: "+strconv.Itoa(size)+"\r\n") {
			t.Errorf("%d bytes: the upstream got %d requests, the last %.300q", size, len(seen), seen[len(seen)-1].head)
		}
	}
}

// A body over what is held in memory arrives whole.
func TestProxyLargeBodyWithAKey(t *testing.T) {
	u := newWireUpstream(t, func(int, wireRequest) (string, bool) { return wireCreated, false })
	srv := newProxy(t, u.url, nil, nil)
	body := strings.Repeat("0123456789abcdef", 20<<10)
	if status, _, _ := post(t, srv, "/", "k", body); status != http.StatusCreated {
		t.Errorf("%d, want 201", status)
	}
	if seen := u.seen(); len(seen) != 1 || seen[0].body != body {
		t.Errorf("the upstream got %d requests, or another body", len(seen))
	}
}

// A body that has been read is sent without waiting for 100 Continue: an upstream that sends none would delay it.
func TestProxyAsksForNoLeaveToSend(t *testing.T) {
	u := newWireUpstream(t, func(int, wireRequest) (string, bool) { return wireCreated, false })
	srv := newProxy(t, u.url, nil, nil)
	if status, _, _ := post(t, srv, "/", "k", "amount=1", "Expect", "100-continue"); status != http.StatusCreated {
		t.Errorf("%d", status)
	}
	if seen := u.seen(); len(seen) != 1 || seen[0].body != "amount=1" || strings.Contains(strings.ToLower(seen[0].head), "expect") {
		t.Errorf("the upstream got %q", seen)
	}
}
