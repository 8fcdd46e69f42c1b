package client_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/everonce/everonce/httponce/client"
)

// Errors of the network, as the network makes them: the second attempt has the same body and the same key.
func TestTransportErrorsThatAreRetried(t *testing.T) {
	for name, peer := range map[string]peer{
		"closed before the request was read": func(net.Conn) {},
		"reset before the request was read":  func(c net.Conn) { _ = c.(*conn).Conn.(*net.TCPConn).SetLinger(0) },
		"closed after the request was read":  answers(""),
		"reset after the request was read":   resets(""),
		"closed within the status line":      answers("HTTP/1.1 20"),
		"closed within the headers":          answers("HTTP/1.1 201 Created\r\nContent-"),
		"no HTTP":                            answers("what?\r\n\r\n"),
		"the body is too short":              answers("HTTP/1.1 201 Created\r\nContent-Length: 7\r\n\r\ncha"),
		"the body is reset":                  resets("HTTP/1.1 201 Created\r\nContent-Length: 7\r\n\r\ncha"),
		"a chunk is too short":               answers("HTTP/1.1 201 Created\r\nTransfer-Encoding: chunked\r\n\r\n7\r\ncha"),
		"the last chunk is missing":          answers("HTTP/1.1 201 Created\r\nTransfer-Encoding: chunked\r\n\r\n7\r\ncharged\r\n"),
	} {
		t.Run(name, func(t *testing.T) {
			wire := onTheWire(t, peer, peer, answers(created))
			var told []client.Retry
			sender := over(t, base(), &client.Options{OnRetry: func(_ context.Context, r client.Retry) { told = append(told, r) }})
			resp, err := post(t, sender, wire.url)
			wantAnswer(t, resp, err, http.StatusCreated, "charged")
			bodies, keys := wire.requests(t)
			for i := range bodies {
				if bodies[i] != "charge" || keys[i] != keys[0] || keys[i] == "" {
					t.Errorf("request %d came with the body %q and the key %s, the first with %s", i+1, bodies[i], keys[i], keys[0])
				}
			}
			if len(told) != 2 || told[0].Err == nil || told[1].Attempt != 2 {
				t.Errorf("OnRetry got %+v", told)
			}
		})
	}
}

func TestTransportDialIsRetried(t *testing.T) {
	wire := onTheWire(t, answers(created))
	dials := 0
	base := base()
	base.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
		dials++
		switch dials {
		case 1:
			addr = "127.0.0.1:0"
		case 2:
			return nil, &net.DNSError{Err: "no such host", Name: "pay.example", IsNotFound: true}
		}
		var d net.Dialer
		return d.DialContext(ctx, network, addr)
	}
	resp, err := post(t, over(t, base, nil), wire.url)
	wantAnswer(t, resp, err, http.StatusCreated, "charged")
	if dials != 3 {
		t.Errorf("%d dials, want 3", dials)
	}
}

func TestTransportBrokenHandshakeIsRetried(t *testing.T) {
	srv := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusCreated) }))
	t.Cleanup(srv.Close)
	wire := onTheWire(t, func(c net.Conn) { _, _ = c.Read(make([]byte, 100)) })
	base := srv.Client().Transport.(*http.Transport).Clone()
	dials := 0
	base.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
		if dials++; dials < 3 {
			addr = strings.TrimSuffix(strings.TrimPrefix(wire.url, "http://"), "/pay")
		}
		var d net.Dialer
		return d.DialContext(ctx, network, addr)
	}
	resp, err := post(t, over(t, base, nil), srv.URL)
	wantAnswer(t, resp, err, http.StatusCreated, "")
	if dials != 3 {
		t.Errorf("%d dials, want 3", dials)
	}
}

// Time runs out: in a handshake that hangs, before the header, by the attempt's limit. Each is tried again.
func TestTransportTimeoutsAreRetried(t *testing.T) {
	for name, tc := range map[string]struct {
		base func(*http.Transport)
		opts client.Options
		url  string
		want string
		tls  bool
	}{
		"handshake": {func(b *http.Transport) { b.TLSHandshakeTimeout = time.Second }, client.Options{}, "https://pay.example/", "TLS handshake timeout", true},
		"header":    {func(b *http.Transport) { b.ResponseHeaderTimeout = time.Second }, client.Options{}, "http://pay.example/", "timeout awaiting response headers", false},
		"attempt":   {func(*http.Transport) {}, client.Options{AttemptTimeout: time.Second}, "http://pay.example/", "AttemptTimeout (1s)", false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				hang := make(chan struct{})
				base, pipes := serve(t, func(http.ResponseWriter, *http.Request) { <-hang })
				defer close(hang)
				tc.base(base)
				if tc.tls { // the hello is not answered
					base.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
						pipes.dials.Add(1)
						here, there := net.Pipe()
						go func() { _, _ = io.Copy(io.Discard, there); there.Close() }()
						return here, nil
					}
				}
				tc.opts.MaxAttempts = 3
				begun := time.Now()
				resp, err := post(t, over(t, base, &tc.opts), tc.url)
				retry := wantError(t, resp, err, 3)
				if !retry.Timeout() || !strings.Contains(err.Error(), tc.want) || pipes.dials.Load() != 3 {
					t.Errorf("%d dials, and the error %v", pipes.dials.Load(), err)
				}
				var out interface{ Timeout() bool }
				if !errors.As(err, &out) || !out.Timeout() {
					t.Errorf("the client's error is no timeout: %v", err)
				}
				if took := time.Since(begun); took < 3*time.Second || took > 3*time.Second+time.Millisecond {
					t.Errorf("three attempts of a second took %v", took)
				}
			})
		})
	}
}

// Errors that are certain to repeat are not retried.
func TestTransportErrorsThatAreNotRetried(t *testing.T) {
	quiet := log.New(io.Discard, "", 0)
	tlsServer := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	tlsServer.Config.ErrorLog = quiet
	tlsServer.StartTLS()
	t.Cleanup(tlsServer.Close)
	demanding := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	demanding.Config.ErrorLog = quiet
	demanding.TLS = &tls.Config{ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: x509.NewCertPool(), MinVersion: tls.VersionTLS12}
	demanding.StartTLS()
	t.Cleanup(demanding.Close)
	plain := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(plain.Close)
	trusting := func(name string) *http.Transport {
		roots := x509.NewCertPool()
		roots.AddCert(tlsServer.Certificate())
		roots.AddCert(demanding.Certificate())
		return &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, ServerName: name, MinVersion: tls.VersionTLS12}}
	}
	over := make(chan struct{})
	close(over)
	expired := trusting("example.com")
	expired.TLSClientConfig.Time = func() time.Time { return time.Date(2200, 1, 1, 0, 0, 0, 0, time.UTC) }
	for name, tc := range map[string]struct {
		base *http.Transport
		url  string
		req  func(*http.Request)
		want string
	}{
		"an issuer that is not trusted":             {base: base(), url: tlsServer.URL, want: "certificate signed by unknown authority"},
		"another host's certificate":                {base: trusting("other.test"), url: tlsServer.URL, want: "not other.test"},
		"an expired certificate":                    {base: expired, url: tlsServer.URL, want: "expired"},
		"no certificate of ours":                    {base: trusting("example.com"), url: demanding.URL, want: "certificate required"},
		"a server without TLS":                      {base: base(), url: strings.Replace(plain.URL, "http:", "https:", 1), want: "does not look like a TLS handshake"},
		"another scheme":                            {base: base(), url: "ftp://pay.example/", want: "unsupported protocol scheme"},
		"no host":                                   {base: base(), url: "http:///", want: "no Host in request URL"},
		"no URL":                                    {base: base(), url: plain.URL, req: func(r *http.Request) { r.URL = nil }, want: "nil Request.URL"},
		"an invalid header name":                    {base: base(), url: plain.URL, req: func(r *http.Request) { r.Header["a b"] = []string{"x"} }, want: "invalid header field name"},
		"an invalid header value":                   {base: base(), url: plain.URL, req: func(r *http.Request) { r.Header.Set("A", "x\ny") }, want: "invalid header field value"},
		"the caller's own key, not to be sent":      {base: base(), url: plain.URL, req: func(r *http.Request) { r.Header.Set("Idempotency-Key", "x\ny") }, want: "invalid header field value"},
		"the end by Request.Cancel":                 {base: base(), url: plain.URL, req: func(r *http.Request) { r.Cancel = over }, want: "request canceled"}, //nolint:staticcheck // who still uses it wants no other attempt
		"a length without a body":                   {base: base(), url: plain.URL, req: func(r *http.Request) { r.Body, r.ContentLength = nil, 3 }, want: "ContentLength=3 with nil Body"},
		"an invalid port":                           {base: base(), url: "http://127.0.0.1:99999/", want: "invalid port"},
		"an address that has no port to connect to": {base: base(), url: "http://[::1]:http:x/", req: nil, want: "invalid"},
	} {
		t.Run(name, func(t *testing.T) {
			var attempts atomic.Int32
			tr, err := client.NewTransport(counts{tc.base, &attempts}, &client.Options{Backoff: 1, MaxBackoff: 1, OnRetry: func(_ context.Context, r client.Retry) {
				t.Errorf("attempt %d was followed by another, after %v", r.Attempt, r.Err)
			}})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(tr.CloseIdleConnections)
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, tc.url, bytes.NewReader([]byte("charge")))
			if err != nil {
				if tc.req == nil && strings.Contains(err.Error(), tc.want) {
					return // http.NewRequest is the first to see it
				}
				t.Fatal(err)
			}
			if tc.req != nil {
				tc.req(req)
			}
			resp, err := tr.RoundTrip(req)
			if err == nil {
				resp.Body.Close()
				t.Fatalf("got %s", resp.Status)
			}
			if !strings.Contains(err.Error(), tc.want) || attempts.Load() != 1 {
				t.Errorf("%d attempts, and the error %v; want one with %q", attempts.Load(), err, tc.want)
			}
		})
	}
}

// A limit of the transport may come back from its base as no more than the end of a context, which the caller's would
// not be.
func TestTransportTimeoutThatTheBaseTellsAsAnEnd(t *testing.T) {
	ended := func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
	for name, slow := range map[string]func(context.Context) (*http.Response, error){
		"of the header": func(ctx context.Context) (*http.Response, error) { return nil, ended(ctx) },
		"of the body": func(ctx context.Context) (*http.Response, error) {
			body := readerFunc(func([]byte) (int, error) { return 0, ended(ctx) })
			return &http.Response{StatusCode: http.StatusCreated, Header: http.Header{}, Body: io.NopCloser(body), ContentLength: -1}, nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := 0
				base := roundTrip(func(r *http.Request) (*http.Response, error) {
					if n++; n == 1 {
						return slow(r.Context())
					}
					return &http.Response{StatusCode: http.StatusCreated, Header: http.Header{}, Body: http.NoBody}, nil
				})
				resp, err := post(t, over(t, base, nil), "http://pay.example/")
				wantAnswer(t, resp, err, http.StatusCreated, "")
			})
		})
	}
}

// An error of the base itself, and not of the network, is not retried. An unknown error is: with a key that is safe.
func TestTransportErrorsOfTheBase(t *testing.T) {
	for _, tc := range []struct {
		err      error
		attempts int
	}{
		{context.Canceled, 1},
		{http.ErrSkipAltProtocol, 1},
		{http.ErrNotSupported, 1},
		{&net.AddrError{Err: "no such port", Addr: "x"}, 1},
		{net.UnknownNetworkError("carrier pigeon"), 1},
		{&net.ParseError{Type: "IP address", Text: "x"}, 1},
		{&tls.CertificateVerificationError{Err: errors.New("no")}, 1},
		{errors.New("http: ContentLength=3 with Body length 6"), 1},
		{errors.New("http2: request body larger than specified content length"), 1},
		{errors.New("http: nil Request.URL"), 1},
		{fmt.Errorf("a base around it: %w", errors.New("unsupported protocol scheme")), 1},
		{context.DeadlineExceeded, 3},
		{errors.New("http: server closed idle connection"), 3},
		{errors.New("something new"), 3},
	} {
		sender := over(t, roundTrip(func(*http.Request) (*http.Response, error) { return nil, tc.err }), &client.Options{MaxAttempts: 3})
		resp, err := post(t, sender, "http://pay.example/")
		wantError(t, resp, err, tc.attempts)
		if !errors.Is(err, tc.err) {
			t.Errorf("%v is not in %v", tc.err, err)
		}
	}
}

// A request without headers gets the key's.
func TestTransportRequestWithoutHeaders(t *testing.T) {
	srv := newKeys(t, 0)
	u, err := url.Parse(srv.URL)
	if err != nil {
		t.Fatal(err)
	}
	req := (&http.Request{Method: http.MethodPost, URL: u}).WithContext(client.WithKey(t.Context(), "k"))
	resp, err := over(t, nil, nil).Transport.RoundTrip(req)
	wantAnswer(t, resp, err, http.StatusCreated, "")
	if got := srv.keys("Idempotency-Key"); len(got) != 1 || got[0] != `"k"` || req.Header != nil {
		t.Errorf("the server got the keys %q; the request's headers are %v", got, req.Header)
	}
}

// counts is a base that counts requests.
type counts struct {
	*http.Transport
	n *atomic.Int32
}

func (c counts) RoundTrip(r *http.Request) (*http.Response, error) {
	c.n.Add(1)
	return c.Transport.RoundTrip(r)
}

// The caller's own context ends it: in an attempt, in a pause, and before the first attempt.
func TestTransportContextEnds(t *testing.T) {
	errEnough := errors.New("enough")
	for name, tc := range map[string]struct {
		ctx   func(context.Context) (context.Context, func())
		want  []error
		after time.Duration
	}{
		"canceled": {func(ctx context.Context) (context.Context, func()) {
			ctx, cancel := context.WithCancel(ctx)
			time.AfterFunc(1500*time.Millisecond, cancel)
			return ctx, cancel
		}, []error{context.Canceled}, 1500 * time.Millisecond},
		"canceled with a cause": {func(ctx context.Context) (context.Context, func()) {
			ctx, cancel := context.WithCancelCause(ctx)
			time.AfterFunc(500*time.Millisecond, func() { cancel(errEnough) })
			return ctx, func() { cancel(nil) }
		}, []error{context.Canceled, errEnough}, 500 * time.Millisecond},
		"out of time": {func(ctx context.Context) (context.Context, func()) {
			ctx, cancel := context.WithTimeout(ctx, 500*time.Millisecond)
			return ctx, cancel
		}, []error{context.DeadlineExceeded}, 500 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				// One attempt lasts for a second and is followed by a pause of a second.
				base, _ := serve(t, func(w http.ResponseWriter, _ *http.Request) {
					<-time.After(time.Second)
					w.Header().Set("Retry-After", "1")
					w.WriteHeader(http.StatusServiceUnavailable)
				})
				ctx, cancel := tc.ctx(t.Context())
				defer cancel()
				begun := time.Now()
				resp, err := postWith(ctx, over(t, base, nil), "http://pay.example/")
				wantError(t, resp, err, 1)
				for _, want := range tc.want {
					if !errors.Is(err, want) {
						t.Errorf("got the error %v, want %v in it", err, want)
					}
				}
				if took := time.Since(begun); took != tc.after {
					t.Errorf("it took %v, want %v", took, tc.after)
				}
			})
		})
	}
}
