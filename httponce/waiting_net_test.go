package httponce_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/httponce"
	"github.com/everonce/everonce/store/memstore"
)

// opsBegun tells of each operation that begins.
type opsBegun chan struct{}

func (b opsBegun) Start(ctx context.Context, _ everonce.Op) context.Context {
	b <- struct{}{}
	return ctx
}

func (opsBegun) End(context.Context, everonce.Observation) {}

// A client that leaves its connection, or its stream, stops waiting at once, however it leaves: with a wait of an hour,
// a kept place would not be reported here. Over HTTP/1.1 net/http reads no further than one byte beyond a request. A
// client that has sent that byte is not seen to leave, and keeps its place until the wait is over.
func TestALeavingClientGivesItsPlaceBack(t *testing.T) {
	for name, tc := range map[string]struct {
		http2 bool
		wait  time.Duration
		leave func(net.Conn, context.CancelFunc)
	}{
		"HTTP/1.1, closed":                       {false, time.Hour, func(c net.Conn, _ context.CancelFunc) { _ = c.Close() }},
		"HTTP/1.1, half closed":                  {false, time.Hour, func(c net.Conn, _ context.CancelFunc) { _ = c.(*net.TCPConn).CloseWrite() }},
		"HTTP/1.1, closed behind a byte":         {false, time.Second, func(c net.Conn, _ context.CancelFunc) { _, _ = c.Write([]byte("P")); _ = c.Close() }},
		"HTTP/2, a stream that is reset":         {true, time.Hour, func(_ net.Conn, reset context.CancelFunc) { reset() }},
		"HTTP/2, closed with all of its streams": {true, time.Hour, func(c net.Conn, _ context.CancelFunc) { _ = c.Close() }},
	} {
		t.Run(name, func(t *testing.T) {
			ops, told := make(opsBegun, 3), make(chan httponce.Served, 2)
			works, free := make(chan struct{}), make(chan struct{})
			recv, err := everonce.NewReceiver(memstore.New(nil), everonce.Refuse, &everonce.Options{Observer: ops})
			if err != nil {
				t.Fatal(err)
			}
			protect, err := httponce.Middleware(recv, httponce.Unscoped(), &httponce.Options{
				Route: httponce.Route{Wait: tc.wait}, MaxWaiting: 1, Observe: func(_ context.Context, s httponce.Served) { told <- s },
			})
			if err != nil {
				t.Fatal(err)
			}
			srv := httptest.NewUnstartedServer(protect(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
				close(works)
				<-free
			})))
			if srv.EnableHTTP2 = tc.http2; tc.http2 {
				srv.StartTLS()
			} else {
				srv.Start()
			}
			t.Cleanup(srv.Close)
			t.Cleanup(func() { close(free) })

			begin(t, srv, tc.http2)
			<-ops
			<-works
			conn, reset := begin(t, srv, tc.http2)
			<-ops // the second has found it
			<-ops // and waits
			tc.leave(conn, reset)
			if s := <-told; s.Waited == 0 || (s.Waited >= tc.wait) != (tc.wait == time.Second) {
				t.Errorf("Observe got %+v, want one that has waited, and until the wait was over where it was not seen to leave", s)
			}
		})
	}
}

// begin sends a request over a new connection, and does not wait for an answer.
func begin(t *testing.T, srv *httptest.Server, http2 bool) (net.Conn, context.CancelFunc) {
	t.Helper()
	c, err := net.Dial("tcp", srv.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	ctx, reset := context.WithCancel(t.Context())
	if !http2 {
		fmt.Fprint(c, "POST / HTTP/1.1\r\nHost: h\r\nIdempotency-Key: k\r\nContent-Length: 2\r\n\r\n{}")
		return c, reset
	}
	own := srv.Client().Transport.(*http.Transport).Clone()
	own.DialContext = func(context.Context, string, string) (net.Conn, error) { return c, nil }
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, srv.URL, strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Idempotency-Key", "k")
	go func() {
		if res, err := own.RoundTrip(r); err == nil {
			_ = res.Body.Close()
		}
	}()
	return c, reset
}
