package proxy_test

import (
	"bufio"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/httponce"
	"github.com/everonce/everonce/httponce/proxy"
)

func newUpstream(t *testing.T, h http.HandlerFunc) *url.URL {
	t.Helper()
	up := httptest.NewServer(h)
	t.Cleanup(up.Close)
	u, err := url.Parse(up.URL)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

// An answer in chunks, which ReverseProxy flushes piece by piece, is held and kept like any other.
func TestProxyChunkedAnswerIsKept(t *testing.T) {
	u := newUpstream(t, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusCreated)
		for _, piece := range []string{"one ", "two"} {
			io.WriteString(w, piece)
			if err := http.NewResponseController(w).Flush(); err != nil {
				t.Error(err)
			}
		}
	})
	srv := newProxy(t, u, nil, nil)
	for _, marker := range []string{"", "true"} {
		status, header, body := post(t, srv, "/", "k", "")
		if status != http.StatusCreated || body != "one two" || header.Get("Idempotent-Replayed") != marker {
			t.Errorf("%d %q %v; want 201, the whole body, marker %q", status, body, header, marker)
		}
	}
}

// Server-sent events arrive one by one.
func TestProxyServerSentEvents(t *testing.T) {
	next := make(chan struct{})
	u := newUpstream(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
		for i := range 3 {
			fmt.Fprintf(w, "data: %d\n\n", i)
			if err := http.NewResponseController(w).Flush(); err != nil {
				t.Error(err)
			}
			<-next
		}
	})
	srv := newProxy(t, u, nil, nil)
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, srv.URL+"/events", nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := srv.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	lines := bufio.NewReader(res.Body)
	for i := range 3 { // each is sent when the one before it has arrived
		if line, err := lines.ReadString('\n'); err != nil || line != fmt.Sprintf("data: %d\n", i) {
			t.Fatalf("%q, %v", line, err)
		}
		if _, err := lines.ReadString('\n'); err != nil {
			t.Fatal(err)
		}
		next <- struct{}{}
	}
}

// A WebSocket, or what else begins with an upgrade, is a connection through the proxy.
func TestProxyUpgrade(t *testing.T) {
	u := newUpstream(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade") != "echo" {
			t.Errorf("the upstream got %v", r.Header)
		}
		c, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer c.Close()
		io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
		io.Copy(c, rw)
	})
	for _, head := range []string{"GET /socket HTTP/1.1\r\n", "POST /socket HTTP/1.1\r\nContent-Length: 0\r\nIdempotency-Key: k\r\n"} {
		srv := newProxy(t, u, nil, nil)
		c, err := net.Dial("tcp", srv.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		io.WriteString(c, head+"Host: service.test\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
		br := bufio.NewReader(c)
		res, err := http.ReadResponse(br, nil)
		if err != nil || res.StatusCode != http.StatusSwitchingProtocols {
			t.Fatalf("%s%v, %v", head, res, err)
		}
		for _, word := range []string{"there", "and back"} {
			io.WriteString(c, word)
			got := make([]byte, len(word))
			if _, err := io.ReadFull(br, got); err != nil || string(got) != word {
				t.Errorf("%s%q, %v", head, got, err)
			}
		}
	}
}

// Fields that belong to one connection stay on it, both ways; what a sender names in Connection belongs to them.
func TestProxyHopByHop(t *testing.T) {
	u := newUpstream(t, func(w http.ResponseWriter, r *http.Request) {
		for _, name := range []string{"Connection", "Keep-Alive", "Proxy-Authorization", "Te", "X-Mine"} {
			if v, ok := r.Header[name]; ok {
				t.Errorf("the upstream got %s: %q", name, v)
			}
		}
		h := w.Header()
		h.Set("Connection", "X-Theirs")
		h.Set("X-Theirs", "1")
		h.Set("Keep-Alive", "timeout=5")
		h.Set("Proxy-Authenticate", "Basic")
	})
	srv := newProxy(t, u, nil, nil)
	for _, key := range []string{"", "k", "k"} {
		_, header, _ := post(t, srv, "/", key, "", "Connection", "X-Mine", "X-Mine", "1", "Proxy-Authorization", "Basic eDp5", "Te", "gzip")
		for _, name := range []string{"Connection", "Keep-Alive", "Proxy-Authenticate", "X-Theirs"} {
			if v, ok := header[name]; ok {
				t.Errorf("the client got %s: %q", name, v)
			}
		}
	}
}

// A Content-Type that the service did not give is not guessed from the body, which may be what a client has written;
// one that a middleware has chosen stands.
func TestProxyGuessesNoContentType(t *testing.T) {
	u := newWireUpstream(t, func(int, wireRequest) (string, bool) {
		return "HTTP/1.1 200 OK\r\nX-Content-Type-Options: nosniff\r\nContent-Length: 14\r\n\r\n<html><script>", false
	})
	proxy, err := proxy.New(u.url, &proxy.Options{Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	protect := protected(t, &httponce.Options{Route: httponce.Route{Header: httponce.HeaderPolicy{Allow: []string{}}}}, proxy.ServeHTTP)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/typed" {
			w.Header().Set("Content-Type", "text/csv")
		}
		protect.ServeHTTP(w, r)
	}))
	t.Cleanup(srv.Close)
	for path, want := range map[string]string{"/": "", "/typed": "text/csv"} {
		for _, key := range []string{"", "k", "k"} {
			if _, header, _ := post(t, srv, path, key, ""); header.Get("Content-Type") != want {
				t.Errorf("%s, key %q: %q, want %q", path, key, header.Get("Content-Type"), want)
			}
		}
	}
}

// The headers that name the client are the proxy's own, unless the proxy in front is trusted.
func TestProxyForwarded(t *testing.T) {
	var got http.Header
	u := newUpstream(t, func(_ http.ResponseWriter, r *http.Request) {
		got = r.Header
		got.Set("Host", r.Host)
	})
	told := []string{"X-Forwarded-For", "192.0.2.7", "X-Forwarded-Proto", "https", "X-Forwarded-Host", "shop.test", "Forwarded", "for=192.0.2.7"}
	for name, tc := range map[string]struct {
		opts proxy.Options
		want map[string]string
	}{
		"not trusted": {proxy.Options{}, map[string]string{"X-Forwarded-For": "127.0.0.1", "X-Forwarded-Proto": "http", "X-Forwarded-Host": "{proxy}", "Forwarded": "", "Host": "{proxy}"}},
		"trusted": {proxy.Options{TrustForwarded: true}, map[string]string{
			"X-Forwarded-For": "192.0.2.7, 127.0.0.1", "X-Forwarded-Proto": "https", "X-Forwarded-Host": "shop.test", "Forwarded": "for=192.0.2.7",
		}},
		"its own host": {proxy.Options{UpstreamHost: true}, map[string]string{"Host": u.Host}},
	} {
		srv := newProxy(t, u, nil, &tc.opts)
		post(t, srv, "/", "k", "", told...)
		for field, want := range tc.want {
			if want = strings.ReplaceAll(want, "{proxy}", srv.Listener.Addr().String()); got.Get(field) != want {
				t.Errorf("%s: %s is %q, want %q", name, field, got.Get(field), want)
			}
		}
	}
}

// The path and the query go on as they came, behind the upstream's own path.
func TestProxyPathAndQuery(t *testing.T) {
	var got string
	u := newUpstream(t, func(_ http.ResponseWriter, r *http.Request) { got = r.RequestURI })
	srv := newProxy(t, u.JoinPath("api"), nil, nil)
	for _, uri := range []string{"/a%2Fb/?x=1;y=2&z=%zz", "/", "/a/../b"} {
		if post(t, srv, uri, "", ""); got != "/api"+uri {
			t.Errorf("%s went on as %s", uri, got)
		}
	}
}

// An upstream that honours keys gets the client's, or one that no other client's can be equal to.
func TestProxyDownstreamKey(t *testing.T) {
	var got string
	u := newUpstream(t, func(w http.ResponseWriter, r *http.Request) {
		got = r.Header.Get("Idempotency-Key")
		w.WriteHeader(http.StatusServiceUnavailable)
		httponce.NotDone(w)
	})
	srv := newProxy(t, u, nil, nil)
	if post(t, srv, "/", `"k"`, ""); got != `"k"` {
		t.Errorf("the upstream got the key %q, want it as it came", got)
	}
	if post(t, srv, "/", "named", "", "Connection", "close, Idempotency-Key"); got != "named" {
		t.Errorf("though the client's Connection names it, the upstream got the key %q: it would not recognise the next attempt", got)
	}
	opts := &httponce.Options{Route: httponce.Route{Save: httponce.Save{"503": httponce.Released}}}
	srv = newProxy(t, u, opts, &proxy.Options{DownstreamKey: true})
	post(t, srv, "/a", "k", "")
	first := got
	if len(first) != 32 || strings.Contains(first, "k") {
		t.Errorf("the upstream got the key %q, want a derived one", first)
	}
	if post(t, srv, "/a", "k", ""); got != first {
		t.Errorf("the second attempt's key is %q, want %q", got, first)
	}
	if post(t, srv, "/b", "k", ""); got == first {
		t.Error("two operations have one key")
	}
	// It must never change: by another key the upstream would do again what it has done for a version before this one.
	key := everonce.Key{Scope: everonce.ScopeOf("everybody", "POST", "/a"), ID: "k"}
	if want := newReceiver(t, everonce.Refuse).DownstreamKey(key, "upstream"); first != want {
		t.Errorf("the upstream got the key %q, want %q", first, want)
	}
	srv = newProxy(t, u, &httponce.Options{Route: httponce.Route{Methods: []string{}}}, &proxy.Options{DownstreamKey: true})
	if post(t, srv, "/a", "k", ""); got != "k" {
		t.Errorf("where no method takes a key, the upstream got %q, want what came", got)
	}
}

// An invalid upstream is rejected when the proxy is made, and the error reveals no password.
func TestProxyRefuses(t *testing.T) {
	for _, text := range []string{"", "localhost:8080", "ftp://host", "http://", "http://user:hunter2@host", "http://host?x=1", "http://host#x", "http:opaque", "http://host:99999", "user:hunter2@host", "http:user:hunter2@host", "user%3Ahunter2%40host", "/user:hunter2@host"} {
		u, err := url.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := proxy.New(u, nil); err == nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%q: %v", text, err)
		}
	}
	ok := &url.URL{Scheme: "http", Host: "service.test"}
	for name, opts := range map[string]proxy.Options{
		"KeyHeader": {KeyHeader: "no header"}, "ConnectTimeout": {ConnectTimeout: -1}, "MaxIdle": {MaxIdle: -1}, "ProblemBase": {ProblemBase: "problems"},
	} {
		if _, err := proxy.New(ok, &opts); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := proxy.New(nil, nil); err == nil {
		t.Error("no upstream is taken")
	}
}

// With a key, a stream passes as it comes all the same; its repetition is not passed on, and says that the body was not
// kept.
func TestProxyStreamsWithAKey(t *testing.T) {
	next := make(chan struct{})
	calls := 0
	u := newUpstream(t, func(w http.ResponseWriter, _ *http.Request) {
		calls++
		w.Header().Set("Content-Type", "text/event-stream")
		io.WriteString(w, "data: 1\n\n")
		if err := http.NewResponseController(w).Flush(); err != nil {
			t.Error(err)
		}
		<-next
		io.WriteString(w, "data: 2\n\n")
	})
	srv := newProxy(t, u, nil, nil)
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, srv.URL+"/", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Idempotency-Key", "k")
	res, err := srv.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	events := bufio.NewReader(res.Body)
	if line, err := events.ReadString('\n'); line != "data: 1\n" || err != nil {
		t.Fatalf("%q, %v", line, err)
	}
	close(next)
	if rest, err := io.ReadAll(events); string(rest) != "\ndata: 2\n\n" || err != nil {
		t.Errorf("%q, %v", rest, err)
	}
	status, header, body := post(t, srv, "/", "k", "")
	if status != http.StatusOK || header.Get("Idempotent-Replayed") != "elided" || header.Get("Content-Type") != "text/event-stream" || body != "" || calls != 1 {
		t.Errorf("its repetition: %d %v %q, after %d calls", status, header, body, calls)
	}
}

// A stream, and an answer too large to be held, that break off are unknown, and the client sees that they did.
func TestProxyBrokenStreamWithAKey(t *testing.T) {
	for name, text := range map[string]string{
		"events":      "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n9\r\ndata: 1\n\n\r\n",
		"a large one": "HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n" + strings.Repeat("x", 999),
	} {
		u := newWireUpstream(t, func(int, wireRequest) (string, bool) { return text, true })
		srv := newProxy(t, u.url, &httponce.Options{Route: httponce.Route{MaxAnswer: 100}}, nil)
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, srv.URL+"/", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Idempotency-Key", "k")
		if res, err := srv.Client().Do(r); err == nil {
			if _, err := io.ReadAll(res.Body); err == nil && res.StatusCode == http.StatusOK {
				t.Errorf("%s: the client got a whole answer", name)
			}
			res.Body.Close()
		}
		if status, _, body := post(t, srv, "/", "k", ""); status != http.StatusConflict || !strings.Contains(body, "outcome-unknown") {
			t.Errorf("%s: its repetition: %d %s", name, status, body)
		}
	}
}

// A client that leaves in the middle of an answer that is not held ends nothing: the upstream is heard out, and the key
// is what its status says, under each policy.
func TestProxyClientLeavesAStream(t *testing.T) {
	for _, policy := range []everonce.Policy{everonce.Refuse, everonce.Reexecute} {
		for _, kind := range []string{"text/plain", "text/event-stream"} {
			var calls atomic.Int64
			u := newUpstream(t, func(w http.ResponseWriter, _ *http.Request) {
				calls.Add(1)
				w.Header().Set("Content-Type", kind)
				w.WriteHeader(http.StatusCreated)
				for range 1 << 10 { // more than the connections hold
					if _, err := io.WriteString(w, strings.Repeat("x", 32<<10)); err != nil {
						t.Errorf("%v, %s: the upstream was cut off: %v", policy, kind, err)
						return
					}
				}
			})
			srv := newProxy(t, u, &httponce.Options{Route: httponce.Route{Policy: policy, Wait: time.Minute}}, nil)
			c, err := net.Dial("tcp", srv.Listener.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			io.WriteString(c, "POST / HTTP/1.1\r\nHost: "+srv.Listener.Addr().String()+"\r\nIdempotency-Key: k\r\nContent-Length: 0\r\n\r\n")
			if _, err := io.ReadFull(c, make([]byte, 1000)); err != nil {
				t.Error(err)
			}
			c.Close()
			status, header, body := post(t, srv, "/", "k", "")
			if status != http.StatusCreated || header.Get("Idempotent-Replayed") != "elided" || calls.Load() != 1 {
				t.Errorf("%v, %s: the repetition: %d %v %.200s, after %d calls", policy, kind, status, header, body, calls.Load())
			}
		}
	}
}
