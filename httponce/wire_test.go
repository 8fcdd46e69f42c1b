package httponce_test

import (
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/textproto"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/httponce"
)

// wire is a pair of servers, with and without the middleware, whose handler a test chooses for each request.
type wire struct {
	bare, protected *httptest.Server
	handlers        sync.Map // by the value of X-Handler
	next            atomic.Int64
}

// saveAll saves every status.
var saveAll = httponce.Save{
	"2xx": httponce.Saved, "3xx": httponce.Saved, "4xx": httponce.Saved, "5xx": httponce.Saved,
	"401": httponce.Saved, "403": httponce.Saved, "408": httponce.Saved, "421": httponce.Saved, "425": httponce.Saved, "429": httponce.Saved,
}

func newWire(t testing.TB, http2 bool, route httponce.Route) *wire {
	t.Helper()
	w := &wire{}
	route.Methods = []string{"POST", "HEAD", "GET"}
	route.Compare.IgnoreHost = true // a test may name any
	protect, err := httponce.Middleware(newReceiver(t, everonce.Refuse), httponce.Unscoped(), &httponce.Options{Route: route})
	if err != nil {
		t.Fatal(err)
	}
	start := func(h http.Handler) *httptest.Server {
		s := httptest.NewUnstartedServer(h)
		s.Config.ErrorLog = log.New(io.Discard, "", 0)
		if s.EnableHTTP2 = http2; http2 {
			s.StartTLS()
		} else {
			s.Start()
		}
		s.Client().CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
		t.Cleanup(s.Close)
		return s
	}
	// A middleware around both, with its own headers.
	outer := func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("X-Outer", "o")
			w.Header().Add("Vary", "Origin")
			h.ServeHTTP(w, r)
		})
	}
	chosen := http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		h, ok := w.handlers.Load(r.Header.Get("X-Handler"))
		if !ok {
			_, _ = io.WriteString(rw, "the end")
			return
		}
		h.(http.HandlerFunc)(rw, r)
	})
	w.bare, w.protected = start(outer(chosen)), start(outer(protect(chosen)))
	return w
}

// handle makes h answer the requests that name it.
func (w *wire) handle(h http.HandlerFunc) (name string) {
	name = fmt.Sprint(w.next.Add(1))
	w.handlers.Store(name, h)
	return name
}

// raw sends one request over a new connection and, unless it is to be alone, a plain one behind it. It returns all
// bytes that come back, except for the date.
func (w *wire) raw(t *testing.T, s *httptest.Server, proto, method, handler string, alone bool) string {
	t.Helper()
	conn, err := net.Dial("tcp", s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	last := ""
	if alone && proto == "HTTP/1.1" {
		last = "Connection: close\r\n"
	}
	fmt.Fprintf(conn, "%s / %s\r\nHost: h\r\nX-Handler: %s\r\nIdempotency-Key: %s\r\n%sContent-Length: 2\r\n\r\n{}", method, proto, handler, handler, last)
	if !alone {
		fmt.Fprintf(conn, "GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
	}
	got, err := io.ReadAll(conn)
	if err != nil {
		t.Fatal(err)
	}
	return withoutDate(string(got))
}

func withoutDate(s string) string {
	lines := strings.SplitAfter(s, "\r\n")
	kept := lines[:0]
	for _, l := range lines {
		if !strings.HasPrefix(l, "Date: ") {
			kept = append(kept, l)
		}
	}
	return strings.Join(kept, "")
}

// heard is an answer as a client decodes it.
type heard struct {
	Status  int
	Header  http.Header
	Body    string
	Trailer http.Header
	Infos   []string
}

func (w *wire) ask(t *testing.T, s *httptest.Server, method, handler string) (h heard) {
	t.Helper()
	var mu sync.Mutex
	trace := &httptrace.ClientTrace{Got1xxResponse: func(code int, header textproto.MIMEHeader) error {
		mu.Lock()
		defer mu.Unlock()
		h.Infos = append(h.Infos, fmt.Sprint(code, header))
		return nil
	}}
	req, err := http.NewRequestWithContext(httptrace.WithClientTrace(context.Background(), trace), method, s.URL, strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("X-Handler", handler)
	req.Header.Set("Idempotency-Key", handler)
	req.Header.Set("Accept-Encoding", "identity")
	res, err := s.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	mu.Lock()
	defer mu.Unlock()
	h.Status, h.Header, h.Body, h.Trailer = res.StatusCode, res.Header, string(body), res.Trailer
	h.Header.Del("Date")
	return h
}
