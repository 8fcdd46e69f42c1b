package proxy_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
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
	"testing/iotest"
	"time"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/httponce"
	"github.com/everonce/everonce/httponce/proxy"
	"github.com/everonce/everonce/internal/testserver"
)

// refusing is an address that refuses every connection. A port that somebody has listened at may be another test's by
// now.
const refusing = "127.0.0.1:0"

// Where nothing was sent, nothing took hold: 502, and the retry runs.
func TestProxyReleasesWhatWasNotSent(t *testing.T) {
	plain := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(plain.Close)
	plain.Config.ErrorLog = quiet
	untrusted := httptest.NewTLSServer(http.NotFoundHandler())
	t.Cleanup(untrusted.Close)
	untrusted.Config.ErrorLog = quiet
	for name, upstream := range map[string]string{
		"connection refused": "http://" + refusing,
		"no such name":       "http://" + strings.Repeat("x", 64) + ".invalid", // a label that no resolver asks for
		"no TLS there":       "https://" + plain.Listener.Addr().String(),
		"untrusted":          untrusted.URL,
	} {
		t.Run(name, func(t *testing.T) {
			u, err := url.Parse(upstream)
			if err != nil {
				t.Fatal(err)
			}
			srv := newProxy(t, u, nil, nil)
			for range 2 { // the second is not refused as in progress or unknown: it runs, and fails alike
				status, header, body := post(t, srv, "/", "k", "amount=1")
				if status != http.StatusBadGateway || !strings.Contains(body, "upstream-unreachable") || header.Get("Retry-After") != "1" {
					t.Errorf("%d %s, want 502 upstream-unreachable with Retry-After", status, body)
				}
			}
		})
	}
}

// A service that takes the connection, and then says nothing to the TLS handshake, is waited for no longer than for a
// connection; and where the request's body cannot be read, because something in between has replaced it, nothing of it
// is sent.
func TestProxyReleasesWhatCouldNotBeSent(t *testing.T) {
	mute, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { mute.Close() })
	srv := newProxy(t, &url.URL{Scheme: "https", Host: mute.Addr().String()}, nil, &proxy.Options{ConnectTimeout: 50 * time.Millisecond})
	if status, _, body := post(t, srv, "/", "k", "amount=1"); status != http.StatusBadGateway || !strings.Contains(body, "upstream-unreachable") {
		t.Errorf("%d %s", status, body)
	}

	u := newWireUpstream(t, func(int, wireRequest) (string, bool) { return wireCreated, false })
	proxy, err := proxy.New(u.url, &proxy.Options{Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	h := protected(t, nil, func(w http.ResponseWriter, r *http.Request) {
		r.Body, r.ContentLength = io.NopCloser(io.MultiReader(strings.NewReader("amount="), iotest.ErrReader(errors.New("lost")))), -1
		proxy.ServeHTTP(w, r)
	})
	for range 2 {
		if res := send(h, "POST", "/", "{}", "Idempotency-Key", "k"); res.StatusCode != http.StatusBadGateway || !strings.Contains(bodyOf(t, res), "upstream-unreachable") || len(u.seen()) != 0 {
			t.Errorf("%d, and the service got %q", res.StatusCode, u.seen())
		}
	}
}

// An upgrade to what is no protocol is refused before anything is sent: a client makes no operation unknown by it.
func TestProxyReleasesAnUpgradeToNothing(t *testing.T) {
	u := newWireUpstream(t, func(int, wireRequest) (string, bool) { return wireCreated, false })
	srv := newProxy(t, u.url, nil, nil)
	for range 2 {
		status, _, body := post(t, srv, "/", "k", "", "Connection", "Upgrade", "Upgrade", "\x80")
		if status != http.StatusBadGateway || !strings.Contains(body, "upstream-unreachable") || len(u.seen()) != 0 {
			t.Errorf("%d %s, and the upstream got %q", status, body, u.seen())
		}
	}
	if status, _, _ := post(t, srv, "/", "k", ""); status != http.StatusCreated {
		t.Errorf("without it: %d", status)
	}
}

// The log names the request that the upstream did not answer by the hash of its key, without its query. Observe gets
// the problem that the client got.
func TestProxyLogsWhatHadNoAnswer(t *testing.T) {
	u := &url.URL{Scheme: "http", Host: refusing}
	var logs bytes.Buffer
	srv := newProxy(t, u, nil, &proxy.Options{Log: slog.New(slog.NewTextHandler(&logs, nil))})
	post(t, srv, "/payments?token=hunter2", "hunter2", "amount=1")
	key := everonce.Key{Scope: everonce.ScopeOf("everybody", "POST", "/payments"), ID: "hunter2"}.RecordID().Short()
	if got := logs.String(); !strings.Contains(got, "method=POST path=/payments key="+key+" problem=upstream-unreachable") || strings.Contains(got, "hunter2") {
		t.Errorf("logged was %q", got)
	}
	logs.Reset()
	post(t, srv, "/payments", "", "amount=1")
	if got := logs.String(); !strings.Contains(got, "method=POST path=/payments problem=upstream-unreachable") {
		t.Errorf("logged of a request without a key was %q", got)
	}
}

// A request without a key that its client does not send to the end is the client's failure: it is answered as that, and
// no log says that the upstream failed.
func TestProxyBlamesNoUpstreamForAClient(t *testing.T) {
	u := newWireUpstream(t, func(int, wireRequest) (string, bool) { return wireCreated, false })
	var logs bytes.Buffer
	proxy, err := proxy.New(u.url, &proxy.Options{Log: slog.New(slog.NewTextHandler(&logs, nil))})
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/slow":
			http.NewResponseController(w).SetReadDeadline(time.Now().Add(20 * time.Millisecond))
		case "/large":
			r.Body = http.MaxBytesReader(w, r.Body, 7)
		}
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(srv.Close)
	for text, want := range map[string]int{
		"POST /broken HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n": 400,
		"POST /slow HTTP/1.1\r\nHost: a\r\nContent-Length: 8\r\n\r\nhalf":              408, // though the end of its context may be seen first
		"POST /large HTTP/1.1\r\nHost: a\r\nContent-Length: 8\r\n\r\n8 letter":         413,
	} {
		c, err := net.Dial("tcp", srv.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		io.WriteString(c, text)
		res, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Errorf("%q: %v", text, err)
			continue
		}
		if res.Body.Close(); res.StatusCode != want || !res.Close {
			t.Errorf("%q: %d, closed: %v, want %d", text, res.StatusCode, res.Close, want)
		}
	}
	if srv.Close(); logs.Len() > 0 {
		t.Errorf("logged was %q", logs.String())
	}
}

// Observe gets the problem that the proxy answered with, and no problem if the upstream answered.
func TestProxyProblemsAreObserved(t *testing.T) {
	unreachable := &url.URL{Scheme: "http", Host: refusing}
	text := func(s string) *url.URL {
		return newWireUpstream(t, func(int, wireRequest) (string, bool) { return s, true }).url
	}
	silent := newWireUpstream(t, func(int, wireRequest) (string, bool) { return "", false }).url
	for name, tc := range map[string]struct {
		upstream *url.URL
		problem  string
		outcome  everonce.Outcome
	}{
		"unreachable":    {unreachable, "upstream-unreachable", everonce.Failed},
		"lost":           {text(""), "upstream-lost", everonce.Unknown},
		"half of a body": {text("HTTP/1.1 201 Created\r\nLocation: /1\r\nContent-Length: 8\r\n\r\nhalf"), "upstream-lost", everonce.Unknown},
		"silent":         {silent, "upstream-timeout", everonce.Unknown},
		"its own 502":    {text("HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n"), "", everonce.Unknown},
		"answered":       {text(wireCreated), "", everonce.Executed},
	} {
		told := make(chan httponce.Served, 1)
		opts := &httponce.Options{Observe: func(_ context.Context, s httponce.Served) { told <- s }, Log: slog.New(slog.DiscardHandler)}
		if name == "silent" {
			opts.Deadline = 50 * time.Millisecond
		}
		status, header, _ := post(t, newProxy(t, tc.upstream, opts, nil), "/", "k", "")
		if header.Get("Location") != "" {
			t.Errorf("%s: the answer has a header of the one that broke off: %v", name, header)
		}
		if s := <-told; s.Problem != tc.problem || s.Outcome != tc.outcome || s.Status != status {
			t.Errorf("%s: %d, Observe got %+v", name, status, s)
		}
	}
}

// The retry of a request that was refused reaches the service that has come up since.
func TestProxyRetryAfterRefusedConnectionRuns(t *testing.T) {
	addr := fmt.Sprintf("127.0.0.1:%d", testserver.FreePort(t))
	srv := newProxy(t, &url.URL{Scheme: "http", Host: addr}, nil, nil)
	if status, _, _ := post(t, srv, "/", "k", ""); status != http.StatusBadGateway {
		t.Fatalf("%d, want 502", status)
	}
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	up := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusCreated) }), ReadHeaderTimeout: time.Minute}
	go up.Serve(ln)
	t.Cleanup(func() { up.Close() })
	if status, header, _ := post(t, srv, "/", "k", ""); status != http.StatusCreated || header.Get("Idempotent-Replayed") != "" {
		t.Errorf("the retry: %d %v, want 201 for the first time", status, header)
	}
}

// A request that the upstream may have worked on is unknown, and is not sent again; the client learns that there was no
// answer.
func TestProxyUnknownAfterWriting(t *testing.T) {
	for name, tc := range map[string]struct {
		text   string
		status int
	}{
		"no answer":                    {"", 502},
		"half of a head":               {"HTTP/1.1 201 Created\r\nContent-Le", 502},
		"no HTTP":                      {"SSH-2.0-OpenSSH_9.6\r\n\r\n", 502},
		"an invalid status":            {"HTTP/1.1 099 Done\r\nContent-Length: 0\r\n\r\n", 502},
		"half of a body":               {"HTTP/1.1 201 Created\r\nContent-Length: 8\r\n\r\nhalf", 502},
		"half of a chunked body":       {"HTTP/1.1 201 Created\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n", 502},
		"a broken chunk":               {"HTTP/1.1 201 Created\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", 502},
		"an upgrade without a request": {"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: other\r\n\r\n", 502},
		"500":                          {"HTTP/1.1 500 Internal Server Error\r\nContent-Length: 0\r\n\r\n", 500},
		"503, as a mesh says":          {"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n", 503},
		"408":                          {"HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\n\r\n", 408},
	} {
		t.Run(name, func(t *testing.T) {
			for _, profile := range []httponce.Profile{httponce.ProfileDefault, httponce.ProfileStripe} {
				u := newWireUpstream(t, func(int, wireRequest) (string, bool) { return tc.text, true })
				srv := newProxy(t, u.url, &httponce.Options{Profile: profile}, nil)
				status, header, body := post(t, srv, "/", "k", "amount=1")
				if status != tc.status || tc.status == 502 && (!strings.Contains(body, "upstream-lost") || header.Get("Content-Type") != "application/problem+json") {
					t.Errorf("%s: %d %s, want %d", profile, status, body, tc.status)
				}
				want := http.StatusConflict
				if profile == httponce.ProfileStripe && tc.status != 502 { // an answer of the upstream's, which that profile saves
					want = tc.status
				}
				if status, _, _ := post(t, srv, "/", "k", "amount=1"); status != want {
					t.Errorf("%s: its repetition: %d, want %d", profile, status, want)
				}
				if n := len(u.seen()); n != 1 {
					t.Errorf("%s: the upstream got %d requests, want 1", profile, n)
				}
			}
		})
	}
}

// Without a middleware around it, or without a key, a broken answer is a broken connection, never a whole answer.
func TestProxyBrokenAnswerWithoutAKey(t *testing.T) {
	u := newWireUpstream(t, func(int, wireRequest) (string, bool) {
		return "HTTP/1.1 201 Created\r\nContent-Length: 8\r\n\r\nhalf", true
	})
	srv := newProxy(t, u.url, nil, nil)
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, srv.URL+"/", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	res, err := srv.Client().Do(r)
	if err != nil {
		return // its connection was cut before the head was flushed
	}
	defer res.Body.Close()
	if b := new(strings.Builder); res.Write(b) == nil {
		t.Errorf("the client got a whole answer: %q", b)
	}
}

// A passed deadline is reported as such, and its outcome is unknown.
func TestProxyDeadline(t *testing.T) {
	hold := make(chan struct{})
	u := newWireUpstream(t, func(int, wireRequest) (string, bool) {
		<-hold
		return "", true
	})
	t.Cleanup(func() { close(hold) })
	srv := newProxy(t, u.url, &httponce.Options{Route: httponce.Route{Deadline: 50 * time.Millisecond}}, nil)
	if status, _, body := post(t, srv, "/", "k", "amount=1"); status != http.StatusGatewayTimeout || !strings.Contains(body, "upstream-timeout") {
		t.Errorf("%d %s, want 504 upstream-timeout", status, body)
	}
	if status, _, _ := post(t, srv, "/", "k", "amount=1"); status != http.StatusConflict {
		t.Errorf("its repetition: %d, want 409", status)
	}
}

// If HTTP/2 says that a request was not processed, it may be sent again, but only by its sender; otherwise it is
// unknown. net/http alone would send all of these again.
func TestProxyHTTP2Refused(t *testing.T) {
	for name, tc := range map[string]struct {
		frames  []byte
		problem string
		alone   int // requests that ReverseProxy alone sends for the one
	}{
		"REFUSED_STREAM": {rstStream(7), "upstream-unreachable", 2},
		"GOAWAY":         {goAway(1, 0), "upstream-unreachable", 2},
		"PROTOCOL_ERROR": {rstStream(1), "upstream-lost", 2},
		"CANCEL":         {rstStream(8), "upstream-lost", 1},
		"closed":         {nil, "upstream-lost", 1},
	} {
		for _, body := range []string{"", "amount=1"} {
			t.Run(name+" "+body, func(t *testing.T) {
				u := newWireUpstream2(t, tc.frames)
				srv := newProxy(t, u.url, nil, &proxy.Options{TLS: u.client})
				if status, _, text := post(t, srv, "/first", "", ""); status != http.StatusOK {
					t.Fatalf("the first request: %d %s", status, text)
				}
				status, _, text := post(t, srv, "/second", "k", body)
				if status != http.StatusBadGateway || !strings.Contains(text, tc.problem) {
					t.Errorf("%d %s, want 502 %s", status, text, tc.problem)
				}
				if n := u.requests.Load(); n != 2 {
					t.Errorf("the upstream got %d requests, want 2", n)
				}
				want := http.StatusConflict
				if tc.problem == "upstream-unreachable" {
					want = http.StatusOK
				}
				if status, _, text := post(t, srv, "/second", "k", body); status != want {
					t.Errorf("its repetition: %d %s, want %d", status, text, want)
				}

				alone := newWireUpstream2(t, tc.frames)
				bare := newBareProxy(t, alone.url, &http.Transport{TLSClientConfig: alone.client, ForceAttemptHTTP2: true})
				post(t, bare, "/first", "", "")
				post(t, bare, "/second", "k", "")
				if n := alone.requests.Load(); n != int64(1+tc.alone) {
					t.Errorf("alone it sent %d for one, want %d", n-1, tc.alone)
				}
			})
		}
	}
}

// A proxy that is used without a server, and without a middleware, is a proxy all the same.
func TestProxyWithoutMiddleware(t *testing.T) {
	var host atomic.Value
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host.Store(r.Host)
		w.WriteHeader(http.StatusTeapot)
	}))
	t.Cleanup(up.Close)
	u, err := url.Parse(up.URL)
	if err != nil {
		t.Fatal(err)
	}
	p, err := proxy.New(u, &proxy.Options{TLS: &tls.Config{MinVersion: tls.VersionTLS13}})
	if err != nil {
		t.Fatal(err)
	}
	if res := send(p, "POST", "http://service.test/", "", "Idempotency-Key", "k"); res.StatusCode != http.StatusTeapot || host.Load() != "service.test" {
		t.Errorf("%d, host %v", res.StatusCode, host.Load())
	}
}

// A truncated answer is an error outside of a server too, where ReverseProxy does not panic.
func TestProxyBrokenAnswerOutsideOfAServer(t *testing.T) {
	u := newWireUpstream(t, func(int, wireRequest) (string, bool) {
		return "HTTP/1.1 201 Created\r\nContent-Length: 8\r\n\r\nhalf", true
	})
	p, err := proxy.New(u.url, nil)
	if err != nil {
		t.Fatal(err)
	}
	protect, err := httponce.Middleware(newReceiver(t, everonce.Refuse), httponce.Unscoped(), nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []int{http.StatusBadGateway, http.StatusConflict} {
		if res := send(protect(p), "POST", "/", "", "Idempotency-Key", "k"); res.StatusCode != want {
			t.Errorf("%d, want %d", res.StatusCode, want)
		}
	}
}

// An answer that breaks off while its client is being answered is forgotten without a write to what the goroutine that
// answers looks at. It takes the race detector to see one, and that sees one of a few.
func TestProxyBrokenAnswerWhileTheClientIsAnswered(t *testing.T) {
	u := newWireUpstream(t, func(int, wireRequest) (string, bool) {
		return "HTTP/1.1 201 Created\r\nContent-Length: 8\r\n\r\nhalf", true
	})
	p, err := proxy.New(u.url, &proxy.Options{Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	opts := &httponce.Options{Log: slog.New(slog.DiscardHandler), Route: httponce.Route{AnswerWithin: 10 * time.Millisecond}}
	for i := range 20 {
		answered, ended := make(chan struct{}), make(chan struct{})
		srv := httptest.NewServer(protected(t, opts, func(w http.ResponseWriter, r *http.Request) {
			defer close(ended)
			p.ServeHTTP(w, r)
			<-answered
		}))
		if status, _, body := post(t, srv, "/", "k", ""); status != http.StatusServiceUnavailable {
			t.Errorf("%d: %d %s, want 503 still-running", i, status, body)
		}
		close(answered)
		<-ended
		srv.Close()
	}
}

// An answer with neither a length nor chunks ends where its connection does (RFC 9112, 6.3). A truncation is visible
// only if the connection was reset. The bytes that came are the answer.
func TestProxyAnswerThatEndsWithItsConnection(t *testing.T) {
	u := newWireUpstream(t, func(int, wireRequest) (string, bool) {
		return "HTTP/1.1 201 Created\r\nConnection: close\r\n\r\nwhole, or half", true
	})
	srv := newProxy(t, u.url, nil, nil)
	for _, mark := range []string{"", "true"} {
		status, header, body := post(t, srv, "/", "k", "amount=1")
		if status != http.StatusCreated || body != "whole, or half" || header.Get("Idempotent-Replayed") != mark {
			t.Errorf("%d %q %v", status, body, header)
		}
	}
	if n := len(u.seen()); n != 1 {
		t.Errorf("the upstream got %d requests, want 1", n)
	}
}

// A client that gives its request up with itself does not end what the service has begun: the key is unknown, and no
// answer is kept that speaks of the client.
func TestProxyEndWithClientIsUnknown(t *testing.T) {
	for _, held := range []bool{false, true} { // the head of the answer has arrived, or not
		begun, calls := make(chan struct{}, 1), atomic.Int64{}
		u := newUpstream(t, func(w http.ResponseWriter, r *http.Request) {
			calls.Add(1)
			io.Copy(io.Discard, r.Body)
			if held {
				w.WriteHeader(http.StatusCreated)
				http.NewResponseController(w).Flush()
			}
			begun <- struct{}{}
			<-r.Context().Done() // the proxy has gone
		})
		srv := newProxy(t, u, &httponce.Options{Route: httponce.Route{EndWithClient: true, Wait: time.Minute}}, nil)
		ctx, leave := context.WithCancel(t.Context())
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, srv.URL+"/", strings.NewReader("amount=1"))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Idempotency-Key", "k")
		go func() {
			<-begun
			leave()
		}()
		if res, err := http.DefaultClient.Do(r); err == nil {
			io.Copy(io.Discard, res.Body)
			res.Body.Close()
		}
		status, _, body := post(t, srv, "/", "k", "amount=1")
		if status != http.StatusConflict || !strings.Contains(body, "outcome-unknown") || calls.Load() != 1 {
			t.Errorf("the head has arrived: %v: the repetition: %d %s, after %d calls", held, status, body, calls.Load())
		}
	}
}
