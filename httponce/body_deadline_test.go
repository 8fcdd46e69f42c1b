package httponce

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// deadlined is a ResponseWriter of a connection that notes its read deadlines.
type deadlined struct {
	http.ResponseWriter
	set []time.Time
	err error
}

func (d *deadlined) SetReadDeadline(t time.Time) error {
	d.set = append(d.set, t)
	return d.err
}

// unwrapping hides a writer as [http.ResponseController] allows.
type unwrapping struct {
	http.ResponseWriter
	inner http.ResponseWriter
}

func (u *unwrapping) Unwrap() http.ResponseWriter { return u.inner }

// The read deadline of the connection is set while a body is read, and then restored to the server's own. If the
// server's is sooner, it is not changed. After a failure the deadline remains, for the rest of the body.
func TestReadDeadlines(t *testing.T) {
	const within = 10 * time.Second
	broken := errors.New("broken")
	for name, c := range map[string]struct {
		server *http.Server
		within time.Duration
		body   io.Reader
		want   []time.Duration // from the beginning; 0 means no deadline
	}{
		"no server timeout":       {server: &http.Server{}, within: within, want: []time.Duration{within, 0}},
		"no net/http server":      {within: within, want: []time.Duration{within, 0}},
		"a longer server timeout": {server: &http.Server{ReadTimeout: time.Minute}, within: within, want: []time.Duration{within, time.Minute}},
		"a shorter one":           {server: &http.Server{ReadTimeout: time.Second}, within: within},
		"left to the server":      {server: &http.Server{}, within: -1},
		"a body that breaks":      {server: &http.Server{}, within: within, body: io.MultiReader(strings.NewReader("a"), failing{broken}), want: []time.Duration{within}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				if c.body == nil {
					c.body = strings.NewReader("body")
				}
				r := httptest.NewRequest(http.MethodPost, "/", io.NopCloser(c.body))
				if c.server != nil {
					r = r.WithContext(context.WithValue(r.Context(), http.ServerContextKey, c.server))
				}
				conn := &deadlined{}
				begun := time.Now()
				b := &body{}
				err := b.readBody(&unwrapping{inner: &unwrapping{inner: conn}}, r, 1<<20, c.within)
				if broke := len(c.want) == 1; broke != errors.Is(err, broken) || !broke && (err != nil || string(b.mem) != "body") {
					t.Errorf("%q, %v", b.mem, err)
				}
				if len(conn.set) != len(c.want) {
					t.Fatalf("deadlines %v, want %v", conn.set, c.want)
				}
				for i, d := range c.want {
					if want := begun.Add(d); d == 0 && !conn.set[i].IsZero() || d != 0 && !conn.set[i].Equal(want) {
						t.Errorf("deadline %d is %v, want %v", i, conn.set[i], d)
					}
				}
			})
		})
	}
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

// stalled is a connection's body: it blocks until the server ends it.
type stalled struct {
	ended chan struct{}
	value any // what the read panics with, if not nil
}

func (s *stalled) Read([]byte) (int, error) {
	<-s.ended
	if s.value != nil {
		panic(s.value)
	}
	return 0, os.ErrDeadlineExceeded
}
func (s *stalled) Close() error { return nil }

// behind returns a request that came over a server's connection.
func behind(body io.ReadCloser) *http.Request {
	r := httptest.NewRequest(http.MethodPost, "/", http.NoBody)
	r.Body, r.ContentLength = body, -1
	return r.WithContext(context.WithValue(r.Context(), http.ServerContextKey, &http.Server{}))
}

// Behind a writer that hides the connection the time is over all the same, and the read that is left ends with the
// server's request, without a trace.
func TestDeadlineOfAHiddenConnection(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	for _, value := range []any{nil, "a panic"} {
		synctest.Test(t, func(t *testing.T) { // which waits for the goroutine
			src := &stalled{ended: make(chan struct{}), value: value}
			b := &body{memory: &space{1 << 20, new(atomic.Int64)}, files: &space{1 << 20, new(atomic.Int64)}}
			begun := time.Now()
			come := bytes.NewReader(random(3 * smallBody))
			err := b.readBody(httptest.NewRecorder(), behind(io.NopCloser(io.MultiReader(come, src))), 1<<20, time.Minute)
			if !errors.Is(err, os.ErrDeadlineExceeded) || time.Since(begun) != time.Minute {
				t.Errorf("%v after %v", err, time.Since(begun))
			}
			b.release()
			if n := b.memory.used.Load(); n == 0 {
				t.Error("what has come takes no room: the test is blind")
			}
			close(src.ended)
			synctest.Wait()
			if n := b.memory.used.Load(); n != 0 {
				t.Errorf("the read that came too late keeps %d bytes of the room for all", n)
			}
		})
	}
	checkNoFiles(t)
}

// A body that comes in time is as good behind such a writer, in memory and in a file; its errors and its panics are
// the handler's.
func TestHiddenConnection(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	memory, files := &space{memoryBody, new(atomic.Int64)}, &space{4 << 20, new(atomic.Int64)}
	for _, size := range []int{0, 10, 3 * smallBody, 2 * memoryBody} {
		p := random(size)
		b := &body{memory: memory, files: files}
		err := b.readBody(httptest.NewRecorder(), behind(io.NopCloser(strings.NewReader(string(p)))), 4<<20, time.Minute)
		if got, readErr := b.bytes(); err != nil || readErr != nil || string(got) != string(p) {
			t.Errorf("%d: %v, %v", size, err, readErr)
		}
		if b.sum() != sha256.Sum256(p) {
			t.Errorf("%d: its sum is another body's", size)
		}
		if m, n := memory.used.Load(), files.used.Load(); (m > 0) != (size == 3*smallBody) || (n > 0) != (size > memoryBody) {
			t.Errorf("%d: it takes %d bytes of the memory and %d of the files for all", size, m, n)
		}
		b.release()
		if m, n := memory.used.Load(), files.used.Load(); m != 0 || n != 0 {
			t.Errorf("%d: it keeps %d bytes of the memory and %d of the files for all", size, m, n)
		}
	}
	if err := (&body{}).readBody(httptest.NewRecorder(), behind(io.NopCloser(goesAway{})), 1<<20, time.Minute); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("a body whose reader ends the goroutine: %v", err)
	}
	b := &body{}
	if err := b.readBody(httptest.NewRecorder(), behind(io.NopCloser(&counter{})), 1<<20, time.Minute); !errors.Is(err, errBodyTooLarge) {
		t.Errorf("too large: %v", err)
	}
	b.release()
	checkNoFiles(t)

	defer func() {
		if p := recover(); p != "a panic" {
			t.Errorf("recovered %v", p)
		}
	}()
	src := &stalled{ended: make(chan struct{}), value: "a panic"}
	close(src.ended)
	err := (&body{}).readBody(httptest.NewRecorder(), behind(src), 1<<20, time.Minute)
	t.Errorf("it returned %v", err)
}

// goesAway ends the goroutine that reads it, as t.FailNow does.
type goesAway struct{}

func (goesAway) Read([]byte) (int, error) {
	runtime.Goexit()
	return 0, nil
}

// Without a connection there is nothing to interrupt: the time is looked at between two reads.
func TestDeadlineWithoutAConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := httptest.NewRequest(http.MethodPost, "/", slowly{})
		b := &body{}
		if err := b.readBody(httptest.NewRecorder(), r, 1<<20, time.Minute); !errors.Is(err, os.ErrDeadlineExceeded) || b.size != 61 {
			t.Errorf("%v, after %d bytes", err, b.size)
		}
	})
}

// slowly sends a byte every second.
type slowly struct{}

func (slowly) Read(p []byte) (int, error) {
	time.Sleep(time.Second)
	return copy(p, "x"), nil
}
