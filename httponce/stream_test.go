package httponce_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"time"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/httponce"
)

// A flush sends at once what was written, and what follows; the record comes when the handler returns, and duplicates
// get status and headers.
func TestAFlushMakesAStream(t *testing.T) {
	w := newWire(t, false, httponce.Route{})
	read := make(chan struct{})
	var calls atomic.Int64
	name := w.handle(func(w http.ResponseWriter, _ *http.Request) {
		calls.Add(1)
		w.Header().Set("Location", "/stream")
		w.WriteHeader(http.StatusAccepted)
		_, _ = io.WriteString(w, "one ")
		w.(http.Flusher).Flush()
		<-read // the client has it, though the handler has not returned
		_, _ = io.WriteString(w, "two")
	})
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, w.protected.URL, strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("X-Handler", name)
	req.Header.Set("Idempotency-Key", name)
	res, err := w.protected.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	first := make([]byte, 4)
	if _, err := io.ReadFull(res.Body, first); err != nil || string(first) != "one " {
		t.Fatal(string(first), err)
	}
	close(read)
	if rest := bodyOf(t, res); rest != "two" || res.StatusCode != http.StatusAccepted {
		t.Errorf("%d %q", res.StatusCode, rest)
	}
	res.Body.Close()
	for range 2 {
		dup := w.ask(t, w.protected, "POST", name)
		if dup.Status != http.StatusAccepted || dup.Header.Get("Location") != "/stream" || dup.Body != "" || dup.Header.Get("Idempotent-Replayed") != "elided" {
			t.Errorf("a duplicate of a stream: %+v", dup)
		}
	}
	if n := calls.Load(); n != 1 {
		t.Errorf("%d executions", n)
	}
}

// Trap: an oversized answer is not stored, and then executed again. The first client gets it whole, duplicates get
// status and headers, and it is not executed again.
func TestTrapALargeOrStreamedAnswerIsNotExecutedAgain(t *testing.T) {
	const limit = 10_000
	for name, write := range map[string]func(http.ResponseWriter){
		"one write": func(w http.ResponseWriter) { _, _ = w.Write(make([]byte, limit+1)) },
		"many writes": func(w http.ResponseWriter) {
			_, _ = io.Copy(struct{ io.Writer }{w}, strings.NewReader(strings.Repeat("x", limit+1)))
		},
		"a string": func(w http.ResponseWriter) { _, _ = io.WriteString(w, strings.Repeat("x", limit+1)) },
		"a file":   func(w http.ResponseWriter) { _, _ = io.Copy(w, &slowReader{strings.Repeat("x", limit+1), 3000}) },
		"bit by bit": func(w http.ResponseWriter) {
			for range limit + 1 {
				_, _ = w.Write([]byte("x"))
			}
		},
		"a stream":     func(w http.ResponseWriter) { w.(http.Flusher).Flush(); _, _ = w.Write(make([]byte, limit+1)) },
		"a late flush": func(w http.ResponseWriter) { _, _ = w.Write(make([]byte, limit+1)); w.(http.Flusher).Flush() },
	} {
		t.Run(name, func(t *testing.T) {
			calls := 0
			h := protected(t, &httponce.Options{Route: httponce.Route{MaxAnswer: limit}}, func(w http.ResponseWriter, _ *http.Request) {
				calls++
				w.Header().Set("Location", "/1")
				w.WriteHeader(http.StatusCreated)
				write(w)
			})
			if res := again(h, "k"); res.StatusCode != http.StatusCreated || len(bodyOf(t, res)) != limit+1 {
				t.Errorf("the first client got %v", res)
			}
			for range 2 {
				res := again(h, "k")
				if res.StatusCode != http.StatusCreated || bodyOf(t, res) != "" || res.Header.Get("Location") != "/1" || res.Header.Get("Idempotent-Replayed") != "elided" {
					t.Errorf("a duplicate got %v", res)
				}
			}
			if calls != 1 {
				t.Errorf("%d executions", calls)
			}
		})
	}
}

// The write that goes over the limit makes the answer a stream: of no answer more than the limit is held.
func TestTheWriteOverTheLimitIsSent(t *testing.T) {
	const limit = 10
	for name, write := range map[string]func(http.ResponseWriter, string){
		"bytes":   func(w http.ResponseWriter, s string) { _, _ = w.Write([]byte(s)) },
		"strings": func(w http.ResponseWriter, s string) { _, _ = io.WriteString(w, s) },
	} {
		rec := httptest.NewRecorder()
		var sent [2]int
		h := protected(t, &httponce.Options{Route: httponce.Route{MaxAnswer: limit}}, func(w http.ResponseWriter, _ *http.Request) {
			write(w, strings.Repeat("x", limit))
			sent[0] = rec.Body.Len()
			write(w, "x")
			sent[1] = rec.Body.Len()
		})
		r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader("{}"))
		r.Header.Set("Idempotency-Key", "k")
		h.ServeHTTP(rec, r)
		if sent != [2]int{0, limit + 1} {
			t.Errorf("%s: %d bytes were sent at the limit, and %d over it", name, sent[0], sent[1])
		}
	}
}

// A refusal of more than the limit is elided too: 4xx is saved as a failure.
func TestALargeRefusalIsElided(t *testing.T) {
	calls := 0
	h := protected(t, &httponce.Options{Route: httponce.Route{MaxAnswer: 10}}, func(w http.ResponseWriter, _ *http.Request) {
		calls++
		w.Header().Set("X-A", "a")
		w.WriteHeader(http.StatusConflict)
		_, _ = io.WriteString(w, "more than ten bytes")
	})
	if res := again(h, "k"); bodyOf(t, res) != "more than ten bytes" {
		t.Error("the first client did not get it")
	}
	if res := again(h, "k"); res.StatusCode != http.StatusConflict || bodyOf(t, res) != "" || res.Header.Get("X-A") != "a" || res.Header.Get("Idempotent-Replayed") != "elided" || calls != 1 {
		t.Errorf("%v, %d executions", res, calls)
	}
}

// A copy to the answer tells a handler what has failed, as net/http's does: one that does not know takes the half for
// the whole, and so would its record.
func TestACopyTellsWhatFails(t *testing.T) {
	lost := errors.New("the source is lost")
	for _, n := range []int{4, 512, 600, 100_000} {
		for name, c := range map[string]struct {
			declared string
			src      io.Reader
			want     error
		}{
			"whole":       {"", strings.NewReader(noise(n)), nil},
			"lost":        {"", io.MultiReader(strings.NewReader(noise(n)), iotest.ErrReader(lost)), lost},
			"more than 3": {"3", iotest.HalfReader(strings.NewReader(noise(n))), http.ErrContentLength},
		} {
			ended := make(chan error, 1)
			srv := httptest.NewServer(protected(t, nil, func(w http.ResponseWriter, _ *http.Request) {
				if c.declared != "" {
					w.Header().Set("Content-Length", c.declared)
				}
				_, err := io.Copy(w, struct{ io.Reader }{c.src})
				if ended <- err; err != nil {
					panic(http.ErrAbortHandler)
				}
			}))
			res, err := srv.Client().Do(keyed(t, srv.URL))
			if err == nil {
				res.Body.Close()
			}
			if got := <-ended; !errors.Is(got, c.want) || (err == nil) != (c.want == nil) {
				t.Errorf("%s, %d bytes: %v, and the client got %v", name, n, got, err)
			}
			srv.Close()
		}
	}
}

// keyed returns a request with a key.
func keyed(t *testing.T, url string) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Idempotency-Key", "k")
	r.GetBody = nil
	return r
}

// A handler that hijacks the connection has answered on it.
func TestAHijackIsDone(t *testing.T) {
	w := newWire(t, false, httponce.Route{Wait: time.Minute}) // the connection ends before the answer is recorded
	var calls atomic.Int64
	for name, upgrade := range map[string]http.HandlerFunc{
		"hijack": func(w http.ResponseWriter, _ *http.Request) {
			calls.Add(1)
			conn, rw, err := w.(http.Hijacker).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			defer conn.Close()
			fmt.Fprint(rw, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\nhello")
			_ = rw.Flush()
			if _, err := w.Write([]byte("x")); !errors.Is(err, http.ErrHijacked) {
				t.Errorf("a write after it: %v", err)
			}
			w.WriteHeader(http.StatusInternalServerError) // is too late, too
		},
		"101": func(w http.ResponseWriter, _ *http.Request) { // as httputil.ReverseProxy does it
			calls.Add(1)
			w.Header().Set("Upgrade", "x")
			w.Header().Set("Connection", "Upgrade")
			w.WriteHeader(http.StatusSwitchingProtocols)
			conn, rw, err := http.NewResponseController(w).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			defer conn.Close()
			fmt.Fprint(rw, "hello")
			_ = rw.Flush()
		},
	} {
		handler := w.handle(upgrade)
		got := w.raw(t, w.protected, "HTTP/1.1", "POST", handler, true)
		if !strings.HasPrefix(got, "HTTP/1.1 101") || !strings.HasSuffix(got, "hello") {
			t.Errorf("%s: %q", name, got)
		}
		dup := w.ask(t, w.protected, "POST", handler)
		if dup.Status != http.StatusOK || dup.Header.Get("Idempotent-Replayed") != "elided" || dup.Body != "" {
			t.Errorf("%s: a duplicate: %+v", name, dup)
		}
	}
	if n := calls.Load(); n != 2 {
		t.Errorf("%d executions, want 2", n)
	}
}

// noPowers is a ResponseWriter that can do nothing but answer.
type noPowers struct{ http.ResponseWriter }

// Where the writer around cannot flush or hijack, neither can the handler, and its answer is no stream.
func TestPowersThatAreNotThere(t *testing.T) {
	body := strings.Repeat("body", 2000)
	inner := protected(t, nil, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, body)
		c := http.NewResponseController(w)
		w.(http.Flusher).Flush()
		_, _, hijack := c.Hijack()
		for what, err := range map[string]error{"Flush": c.Flush(), "Hijack": hijack, "EnableFullDuplex": c.EnableFullDuplex()} {
			if !errors.Is(err, http.ErrNotSupported) {
				t.Errorf("%s: %v", what, err)
			}
		}
	})
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { inner.ServeHTTP(noPowers{w}, r) })
	for _, to := range []string{"who was first", "a duplicate"} {
		if got := bodyOf(t, again(h, "k")); got != body {
			t.Errorf("%s got %d bytes of %d: the answer was taken for a stream", to, len(got), len(body))
		}
	}
}

// allPowers is a ResponseWriter that can do what one of net/http can, and notes what it was asked.
type allPowers struct {
	*httptest.ResponseRecorder
	asked []string
}

func (w *allPowers) ask(what string) error { w.asked = append(w.asked, what); return nil }

func (w *allPowers) SetReadDeadline(at time.Time) error {
	return w.ask("read " + at.Format(time.Kitchen))
}

func (w *allPowers) SetWriteDeadline(at time.Time) error {
	return w.ask("write " + at.Format(time.Kitchen))
}
func (w *allPowers) EnableFullDuplex() error { return w.ask("duplex") }

func (w *allPowers) CloseNotify() <-chan bool {
	gone := make(chan bool, 1)
	gone <- true
	return gone
}

// The handler has the optional methods of the outer ResponseWriter, and its answer does not become a stream because of
// them.
func TestPowersThatAreThere(t *testing.T) {
	inner := protected(t, nil, func(w http.ResponseWriter, _ *http.Request) {
		c, noon := http.NewResponseController(w), time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
		for what, err := range map[string]error{
			"SetReadDeadline": c.SetReadDeadline(noon.Add(time.Hour)), "SetWriteDeadline": c.SetWriteDeadline(noon),
			"EnableFullDuplex": c.EnableFullDuplex(),
		} {
			if err != nil {
				t.Errorf("%s: %v", what, err)
			}
		}
		select {
		case <-w.(interface{ CloseNotify() <-chan bool }).CloseNotify():
		case <-time.After(3 * time.Minute):
			t.Error("the client has gone, and CloseNotify did not say so")
		}
		_, _ = io.WriteString(w, "body")
	})
	w := &allPowers{ResponseRecorder: httptest.NewRecorder()}
	h := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { inner.ServeHTTP(w, r) })
	again(h, "k")
	for _, what := range []string{"duplex", "read 1:00PM", "write 12:00PM"} {
		if !slices.Contains(w.asked, what) {
			t.Errorf("it was asked %q, and not for %s", w.asked, what)
		}
	}
	if res := again(inner, "k"); bodyOf(t, res) != "body" {
		t.Error("the answer was taken for a stream")
	}
}

// Early hints are sent while the handler works, each with the header of its moment, and are not replayed.
func TestEarlyHintsAreSentAtOnce(t *testing.T) {
	w := newWire(t, false, httponce.Route{})
	read := make(chan struct{})
	name := w.handle(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Link", "</a>; rel=preload")
		w.WriteHeader(http.StatusEarlyHints)
		w.Header().Add("Link", "</b>; rel=preload")
		w.WriteHeader(http.StatusEarlyHints)
		<-read
		w.Header().Del("Link")
		_, _ = io.WriteString(w, "done")
	})
	conn, err := net.Dial("tcp", w.protected.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "POST / HTTP/1.1\r\nHost: h\r\nX-Handler: %s\r\nIdempotency-Key: k\r\nContent-Length: 0\r\n\r\n", name)
	r := bufio.NewReader(conn)
	for _, want := range []int{1, 2} {
		res, err := http.ReadResponse(r, nil)
		if err != nil || res.StatusCode != http.StatusEarlyHints || len(res.Header.Values("Link")) != want {
			t.Fatal(res, err)
		}
	}
	close(read)
	res, err := http.ReadResponse(r, nil)
	if err != nil || res.StatusCode != http.StatusOK || res.Header.Get("Link") != "" || bodyOf(t, res) != "done" {
		t.Fatal(res, err)
	}
}

// A handler behind the middleware panics wherever it does under net/http.
func TestAnInvalidStatusPanicsAsInNetHTTP(t *testing.T) {
	for _, status := range []int{0, 99, 1000, -1} {
		h := protected(t, nil, func(w http.ResponseWriter, _ *http.Request) {
			defer func() {
				if p := recover(); fmt.Sprint(p) != fmt.Sprintf("invalid WriteHeader code %d", status) {
					t.Errorf("%d: %v", status, p)
				}
			}()
			w.WriteHeader(status)
		})
		again(h, fmt.Sprint("k", status))
	}
}

// The errors of writes are net/http's.
func TestWritesThatAreRefused(t *testing.T) {
	h := protected(t, nil, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/length" {
			w.Header().Set("Content-Length", "3")
			if n, err := io.WriteString(w, "abc"); n != 3 || err != nil {
				t.Error(n, err)
			}
			if n, err := io.WriteString(w, "d"); n != 0 || !errors.Is(err, http.ErrContentLength) {
				t.Error(n, err)
			}
			return
		}
		w.WriteHeader(http.StatusNoContent)
		if n, err := w.Write(nil); n != 0 || err != nil {
			t.Error(n, err)
		}
		if n, err := w.Write([]byte("x")); n != 0 || !errors.Is(err, http.ErrBodyNotAllowed) {
			t.Error(n, err)
		}
	})
	for path, want := range map[string]string{"/length": "abc", "/none": ""} {
		for range 2 {
			if got := bodyOf(t, send(h, "POST", path, "", "Idempotency-Key", "k")); got != want {
				t.Errorf("%s: %q", path, got)
			}
		}
	}
}

// A refused write is part of the length of the stream that follows, too: net/http accepts nothing more from a handler
// that has written too much.
func TestWhatWasRefusedCountsInAStream(t *testing.T) {
	h := protected(t, nil, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", r.Header.Get("Idempotency-Key"))
		for range 2 {
			if n, err := w.Write([]byte("ab")); n != 0 || !errors.Is(err, http.ErrContentLength) {
				t.Errorf("Write: %d, %v", n, err)
			}
			w.(http.Flusher).Flush()
			if n, err := io.WriteString(w, "c"); n != 0 || !errors.Is(err, http.ErrContentLength) {
				t.Errorf("WriteString: %d, %v", n, err)
			}
			if _, err := io.Copy(w, struct{ io.Reader }{strings.NewReader("d")}); !errors.Is(err, http.ErrContentLength) {
				t.Errorf("ReadFrom: %v", err)
			}
		}
	})
	srv := httptest.NewServer(h)
	defer srv.Close()
	for _, declared := range []string{"1", "0"} {
		if body := bodyOf(t, again(h, declared)); body != "" {
			t.Errorf("%s: the client got %q", declared, body)
		}
		r := keyed(t, srv.URL)
		r.Header.Set("Idempotency-Key", "0"+declared) // of another request than the one before
		if res, err := srv.Client().Do(r); err == nil {
			if body, _ := io.ReadAll(res.Body); len(body) > 0 {
				t.Errorf("%s: the client of a server got %q", declared, body)
			}
			res.Body.Close()
		}
	}
}

// Nothing is added to what was streamed by an attempt that has lost its lease: no problem's text stands behind it.
func TestALostLeaseAddsNothingToAStream(t *testing.T) {
	var svc *service
	svc = newService(t, setup{handle: func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "mine")
		w.(http.Flusher).Flush()
		if err := svc.recv.Settle(r.Context(), keyOf("k"), everonce.Settlement{Verdict: everonce.SettleNotDone, Force: true}); err != nil {
			t.Error(err)
		}
	}})
	if g := svc.post("k"); g.status != http.StatusOK || g.body != "mine" || svc.last().Outcome != everonce.LeaseLost {
		t.Errorf("it got %+v, Observe got %+v", g, svc.last())
	}
}
