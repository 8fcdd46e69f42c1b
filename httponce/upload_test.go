package httponce_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"mime/multipart"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/httponce"
)

// upload is a server that records its requests.
type upload struct {
	*httptest.Server
	t       testing.TB
	reading chan struct{} // a body is about to be read
	handled chan string   // a handler has the body
	problem chan string   // an exchange is over
}

func newUpload(t testing.TB, opts httponce.Options, serve func(*httptest.Server)) *upload {
	t.Helper()
	u := &upload{t: t, reading: make(chan struct{}, 100), handled: make(chan string, 100), problem: make(chan string, 100)}
	opts.Observe = func(_ context.Context, s httponce.Served) { u.problem <- s.Problem }
	principal := func(*http.Request) (string, error) {
		u.reading <- struct{}{}
		return "alice", nil
	}
	protect, err := httponce.Middleware(newReceiver(t, everonce.Refuse), principal, &opts)
	if err != nil {
		t.Fatal(err)
	}
	u.Server = httptest.NewUnstartedServer(protect(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		u.handled <- string(b)
		fmt.Fprintf(w, "%d bytes", len(b))
	})))
	if serve == nil {
		serve = (*httptest.Server).Start
	}
	serve(u.Server)
	t.Cleanup(u.Close)
	return u
}

// begin sends the head of a request, and the beginning of its body.
func (u *upload) begin(key, header, body string) net.Conn {
	u.t.Helper()
	conn, err := net.Dial("tcp", u.Listener.Addr().String())
	if err != nil {
		u.t.Fatal(err)
	}
	u.t.Cleanup(func() { conn.Close() })
	fmt.Fprintf(conn, "POST /files HTTP/1.1\r\nHost: %s\r\nIdempotency-Key: %s\r\n%s\r\n\r\n%s", u.Listener.Addr(), key, header, body)
	return conn
}

func (u *upload) answer(conn net.Conn) (*http.Response, string) {
	u.t.Helper()
	res, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		u.t.Fatal(err)
	}
	return res, bodyOf(u.t, res)
}

func (u *upload) post(key, body string) *http.Response {
	u.t.Helper()
	r, err := http.NewRequest(http.MethodPost, u.URL+"/files", strings.NewReader(body))
	if err != nil {
		u.t.Fatal(err)
	}
	r.Header.Set("Idempotency-Key", key)
	res, err := u.Client().Do(r)
	if err != nil {
		u.t.Fatal(err)
	}
	u.t.Cleanup(func() { res.Body.Close() })
	return res
}

func (u *upload) notHandled() {
	u.t.Helper()
	select {
	case b := <-u.handled:
		u.t.Errorf("the handler was called with %q", b)
	default:
	}
}

// While one request is sent, slowly, the key is free: another with the same key runs, and the slow one gets its answer.
func TestNoClaimIsHeldDuringAnUpload(t *testing.T) {
	u := newUpload(t, httponce.Options{}, nil)
	slow := u.begin("k1", "Content-Length: 10", "01234")
	<-u.reading
	if res := u.post("k1", "0123456789"); res.StatusCode != http.StatusOK || bodyOf(t, res) != "10 bytes" || res.Header.Get("Idempotent-Replayed") != "" {
		t.Errorf("the quick one: %d %v", res.StatusCode, res.Header)
	}
	io.WriteString(slow, "56789")
	if res, body := u.answer(slow); res.StatusCode != http.StatusOK || body != "10 bytes" || res.Header.Get("Idempotent-Replayed") != "true" {
		t.Errorf("the slow one: %d %q %v", res.StatusCode, body, res.Header)
	}
	<-u.handled
	u.notHandled()
}

// hiding is a ResponseWriter that hides the one behind it, as many logging middlewares do.
type hiding struct{ http.ResponseWriter }

// A sender that takes too long is answered 408, over every connection, and nothing has been claimed: the same key is
// free.
func TestSlowSender(t *testing.T) {
	within := httponce.Options{Route: httponce.Route{BodyTimeout: 20 * time.Millisecond}}
	for name, c := range map[string]struct {
		opts   httponce.Options
		serve  func(*httptest.Server)
		hidden bool
	}{
		"our deadline": {opts: within},
		"the server's": {serve: func(s *httptest.Server) {
			s.Config.ReadTimeout = 20 * time.Millisecond
			s.Config.ReadHeaderTimeout = time.Minute // else a head that comes late, on a busy machine, is answered by nothing
			s.Start()
		}},
		"a hidden connection": {opts: within, hidden: true, serve: func(s *httptest.Server) {
			h := s.Config.Handler
			s.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { h.ServeHTTP(hiding{w}, r) })
			s.Start()
		}},
	} {
		for _, header := range []string{"Content-Length: 10", "Transfer-Encoding: chunked", "Content-Length: 10\r\nExpect: 100-continue"} {
			t.Run(name+", "+header, func(t *testing.T) {
				u := newUpload(t, c.opts, c.serve)
				slow := u.begin("k1", header, "5\r\n012")
				in := bufio.NewReader(slow)
				res, err := http.ReadResponse(in, nil)
				if err == nil && res.StatusCode == http.StatusContinue {
					res, err = http.ReadResponse(in, nil)
				}
				if err != nil {
					t.Fatal(err)
				}
				if res.StatusCode != http.StatusRequestTimeout || !strings.Contains(bodyOf(t, res), "body-too-slow") || !res.Close {
					t.Errorf("%d, closes is %v", res.StatusCode, res.Close)
				}
				if !c.hidden { // else the server waits for the rest, as it does for any handler that leaves some
					if _, err := in.ReadByte(); err == nil {
						t.Error("the connection goes on")
					}
				}
				if p := <-u.problem; p != "body-too-slow" {
					t.Errorf("Observe got %q", p)
				}
				u.notHandled()
				if c.opts.BodyTimeout > 0 {
					if res := u.post("k1", "0123456789"); res.StatusCode != http.StatusOK || res.Header.Get("Idempotent-Replayed") != "" {
						t.Errorf("the same key: %d %v", res.StatusCode, res.Header)
					}
				}
			})
		}
	}
}

// A deadline is for the body, and not for the handler: one that works for longer keeps its context.
func TestHandlerOutlivesTheDeadlineOfTheBody(t *testing.T) {
	started, timeout := make(chan struct{}), make(chan struct{})
	opts := httponce.Options{Route: httponce.Route{BodyTimeout: 20 * time.Millisecond, EndWithClient: true}}
	u := newUpload(t, opts, nil)
	protect, err := httponce.Middleware(newReceiver(t, everonce.Refuse), httponce.Unscoped(), &opts)
	if err != nil {
		t.Fatal(err)
	}
	long := httptest.NewServer(protect(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		close(started)
		<-timeout
		if err := r.Context().Err(); err != nil {
			t.Errorf("the handler's context: %v", err)
		}
	})))
	defer long.Close()
	done := make(chan int)
	go func() {
		r, _ := http.NewRequest(http.MethodPost, long.URL, strings.NewReader("body"))
		r.Header.Set("Idempotency-Key", "k1")
		res, err := long.Client().Do(r)
		if err != nil {
			t.Error(err)
			done <- 0
			return
		}
		res.Body.Close()
		done <- res.StatusCode
	}()
	<-started
	u.begin("k2", "Content-Length: 10", "012") // it begins later, so that its time is over later
	if p := <-u.problem; p != "body-too-slow" {
		t.Errorf("Observe got %q", p)
	}
	close(timeout)
	if status := <-done; status != http.StatusOK {
		t.Errorf("answered %d", status)
	}
}

// A body that is declared too large is rejected before a client that asks first has sent a byte, and one that turns out
// too large as soon as it does. Nothing is claimed.
func TestTooLargeABody(t *testing.T) {
	u := newUpload(t, httponce.Options{Route: httponce.Route{MaxBody: 10}}, nil)
	for name, c := range map[string]struct{ header, body string }{
		"declared, asked first": {"Content-Length: 11\r\nExpect: 100-continue", ""},
		"declared":              {"Content-Length: 11", "0123456789a"},
		"declared, huge":        {"Content-Length: 9223372036854775807", "0"},
		"chunked":               {"Transfer-Encoding: chunked", "b\r\n0123456789a\r\n0\r\n\r\n"},
		"chunked, endless":      {"Transfer-Encoding: chunked", "6\r\n012345\r\n6\r\n012345\r\n"},
	} {
		res, body := u.answer(u.begin("k1", c.header, c.body))
		if res.StatusCode != http.StatusRequestEntityTooLarge || !strings.Contains(body, "body-too-large") || !strings.Contains(body, "The limit is 10 bytes.") || !res.Close {
			t.Errorf("%s: %d %s", name, res.StatusCode, body)
		}
	}
	u.notHandled()
	if res, body := u.answer(u.begin("k1", "Content-Length: 10\r\nConnection: close", "0123456789")); res.StatusCode != http.StatusOK || body != "10 bytes" {
		t.Errorf("at the limit: %d %s", res.StatusCode, body)
	}
}

// A lower limit of somebody outside is a limit too.
func TestLimitFromOutside(t *testing.T) {
	h, calls := counted(t, nil)
	limited := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Body = http.MaxBytesReader(w, r.Body, 5)
		h.ServeHTTP(w, r)
	})
	if res := send(limited, "POST", "/", "0123456789", "Idempotency-Key", "k1"); res.StatusCode != http.StatusRequestEntityTooLarge || *calls != 0 {
		t.Errorf("%d, %d calls", res.StatusCode, *calls)
	}
}

// A body that was cut off is no request: nothing is claimed, and its retry runs.
func TestCutOffBody(t *testing.T) {
	for name, begun := range map[string][2]string{
		"declared":            {"Content-Length: 10", "01234"},
		"chunked":             {"Transfer-Encoding: chunked", "5\r\n01234\r\n"},
		"a chunk":             {"Transfer-Encoding: chunked", "5\r\n012"},
		"a chunk that is not": {"Transfer-Encoding: chunked", "zz\r\n012"},
	} {
		t.Run(name, func(t *testing.T) {
			u := newUpload(t, httponce.Options{}, nil)
			conn := u.begin("k1", begun[0], begun[1])
			<-u.reading
			conn.(*net.TCPConn).CloseWrite()
			if res, body := u.answer(conn); res.StatusCode != http.StatusBadRequest || !strings.Contains(body, "body-broken") {
				t.Errorf("%d %s", res.StatusCode, body)
			}
			u.notHandled()
			if res := u.post("k1", "0123456789"); res.StatusCode != http.StatusOK || res.Header.Get("Idempotent-Replayed") != "" {
				t.Errorf("the retry: %d %v", res.StatusCode, res.Header)
			}
		})
	}
}

// Over HTTP/2 a slow sender ends its stream and no other: the connection goes on.
func TestSlowSenderOverHTTP2(t *testing.T) {
	u := newUpload(t, httponce.Options{Route: httponce.Route{BodyTimeout: 20 * time.Millisecond}}, func(s *httptest.Server) {
		s.EnableHTTP2 = true
		s.StartTLS()
	})
	half, rest := io.Pipe()
	defer rest.Close()
	r, err := http.NewRequest(http.MethodPost, u.URL+"/files", half)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Idempotency-Key", "k1")
	res, err := u.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	if body := bodyOf(t, res); res.ProtoMajor != 2 || res.StatusCode != http.StatusRequestTimeout || !strings.Contains(body, "body-too-slow") {
		t.Errorf("%s %d %s", res.Proto, res.StatusCode, body)
	}
	if res := u.post("k1", "0123456789"); res.StatusCode != http.StatusOK || res.Header.Get("Idempotent-Replayed") != "" {
		t.Errorf("the same key: %d %v", res.StatusCode, res.Header)
	}
}

// Over HTTP/2 a body that is refused ends its own stream, and not the connection with all that others have on it.
func TestARefusedBodyLeavesTheConnectionOfHTTP2(t *testing.T) {
	u := newUpload(t, httponce.Options{Route: httponce.Route{MaxBody: 5}}, func(s *httptest.Server) {
		s.EnableHTTP2 = true
		s.StartTLS()
	})
	conns := map[string]bool{}
	trace := &httptrace.ClientTrace{GotConn: func(info httptrace.GotConnInfo) { conns[info.Conn.LocalAddr().String()] = true }}
	for range 4 {
		r, err := http.NewRequestWithContext(httptrace.WithClientTrace(t.Context(), trace), http.MethodPost, u.URL+"/files", strings.NewReader("0123456789"))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Idempotency-Key", "k1")
		res, err := u.Client().Do(r)
		if err != nil {
			t.Fatal(err)
		}
		if body := bodyOf(t, res); res.ProtoMajor != 2 || res.StatusCode != http.StatusRequestEntityTooLarge {
			t.Errorf("%s %d %s", res.Proto, res.StatusCode, body)
		}
	}
	if len(conns) != 1 {
		t.Errorf("four requests took %d connections", len(conns))
	}
}

// The handler has its request as it came, the body from its beginning, however it is read; and a file that held a
// part of it is gone afterwards.
func TestRequestIsTheHandlersAsItCame(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	large := strings.Repeat("0123456789", 20<<10)
	var seen func(*http.Request)
	protect, err := httponce.Middleware(newReceiver(t, everonce.Refuse), httponce.Unscoped(), nil)
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(protect(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.GetBody != nil {
			t.Error("GetBody is set")
		}
		seen(r)
	})))
	defer srv.Close()
	multi := &bytes.Buffer{}
	form := multipart.NewWriter(multi)
	part, err := form.CreateFormFile("file", "name")
	if err != nil {
		t.Fatal(err)
	}
	io.WriteString(part, large)
	form.Close()

	for name, c := range map[string]struct {
		body        io.Reader
		contentType string
		seen        func(*http.Request) error
	}{
		"a length": {strings.NewReader("body"), "text/plain", func(r *http.Request) error {
			return is(r, "body", 4, nil)
		}},
		"a large one": {strings.NewReader(large), "text/plain", func(r *http.Request) error {
			return is(r, large, int64(len(large)), nil)
		}},
		"chunks": {io.MultiReader(strings.NewReader("bo"), strings.NewReader("dy")), "text/plain", func(r *http.Request) error {
			return is(r, "body", -1, []string{"chunked"})
		}},
		"nothing": {http.NoBody, "text/plain", func(r *http.Request) error {
			if r.Body != http.NoBody {
				return errors.New("a body")
			}
			return is(r, "", 0, nil)
		}},
		"a form": {strings.NewReader("a=1&b=2&a=3"), "application/x-www-form-urlencoded", func(r *http.Request) error {
			if err := r.ParseForm(); err != nil || len(r.PostForm["a"]) != 2 || r.FormValue("b") != "2" {
				return fmt.Errorf("%v, %w", r.PostForm, err)
			}
			return nil
		}},
		"a file": {bytes.NewReader(multi.Bytes()), form.FormDataContentType(), func(r *http.Request) error {
			f, _, err := r.FormFile("file")
			if err != nil {
				return err
			}
			defer f.Close()
			if b, err := io.ReadAll(f); err != nil || string(b) != large {
				return fmt.Errorf("%d bytes, %w", len(b), err)
			}
			return nil
		}},
	} {
		called := false
		seen = func(r *http.Request) {
			called = true
			if err := c.seen(r); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		r, err := http.NewRequest(http.MethodPost, srv.URL, c.body)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", c.contentType)
		r.Header.Set("Idempotency-Key", `"`+name+`"`)
		res, err := srv.Client().Do(r)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		if !called {
			t.Errorf("%s: answered %d, not called", name, res.StatusCode)
		}
	}
	if left, err := os.ReadDir(os.TempDir()); err != nil || len(left) > 0 {
		t.Errorf("left are %v, %v", left, err)
	}
}

func is(r *http.Request, body string, length int64, encoding []string) error {
	b, err := io.ReadAll(r.Body)
	if err != nil || string(b) != body || r.ContentLength != length || fmt.Sprint(r.TransferEncoding) != fmt.Sprint(encoding) {
		return fmt.Errorf("%d bytes, length %d, encoding %v, %w", len(b), r.ContentLength, r.TransferEncoding, err)
	}
	return nil
}

// Trailers have come with the body, and are available when the handler begins.
func TestRequestTrailers(t *testing.T) {
	var trailer http.Header
	protect, err := httponce.Middleware(newReceiver(t, everonce.Refuse), httponce.Unscoped(), nil)
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(protect(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { trailer = r.Trailer })))
	defer srv.Close()
	r, err := http.NewRequest(http.MethodPost, srv.URL, io.MultiReader(strings.NewReader("body")))
	if err != nil {
		t.Fatal(err)
	}
	r.Trailer = http.Header{"Checksum": {"c0ffee"}}
	r.Header.Set("Idempotency-Key", "k1")
	res, err := srv.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	if trailer.Get("Checksum") != "c0ffee" {
		t.Errorf("trailers %v", trailer)
	}
}
