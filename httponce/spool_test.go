package httponce_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/everonce/everonce/httponce"
)

// The temporary files of all requests together have a bound: who finds no room is told to come back, nothing is
// claimed, and what a request had is given back however it ends.
func TestMaxSpool(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	running, end := make(chan struct{}), make(chan struct{})
	svc := newService(t, setup{
		opts: httponce.Options{MaxSpool: int64(len(large)) + 100, Route: httponce.Route{MaxBody: int64(len(large))}},
		handle: func(w http.ResponseWriter, r *http.Request) {
			n, err := io.Copy(io.Discard, r.Body)
			switch {
			case err != nil:
				t.Errorf("the body: %v", err)
			case n != int64(len(large)):
			case r.Header.Get("Idempotency-Key") == "panics":
				panic(http.ErrAbortHandler)
			case r.Header.Get("Idempotency-Key") == "first":
				close(running)
				<-end
			}
			w.WriteHeader(http.StatusCreated)
		},
	})
	first := make(chan got)
	go func() { first <- svc.postBody("first", large) }()
	<-running
	for _, key := range []string{"second", "third"} {
		if g := svc.postBody(key, large); g.status != http.StatusServiceUnavailable || g.problem != "busy" || g.retryAfter != "5" || svc.last().KeyHash != "" {
			t.Errorf("while another has the room it got %+v", g)
		}
	}
	if g := svc.postBody("small", "{}"); g.status != http.StatusCreated {
		t.Errorf("a small one got %+v", g)
	}
	if logs := svc.logs.String(); strings.Count(logs, "level=WARN") != 2 || !strings.Contains(logs, "MaxSpool") {
		t.Errorf("logged was %q", logs)
	}
	close(end)
	if g := <-first; g.status != http.StatusCreated {
		t.Errorf("the first got %+v", g)
	}

	func() {
		defer func() { _ = recover() }()
		svc.postBody("panics", large)
	}()
	if g := svc.post("first"); g.problem != "key-reused" {
		t.Errorf("the key with another body got %+v", g)
	}
	for problem, body := range map[string]io.Reader{
		"body-too-large": strings.NewReader(large + "x"),
		"body-broken":    io.MultiReader(strings.NewReader(large), iotest.ErrReader(io.ErrUnexpectedEOF)),
	} {
		r := httptest.NewRequest(http.MethodPost, "/payments", body)
		r.ContentLength = -1 // so that it is read
		r.Header.Set("Idempotency-Key", problem)
		w := httptest.NewRecorder()
		svc.ServeHTTP(w, r)
		if g := read(t, w.Result()); g.problem != problem {
			t.Errorf("%s: it got %+v", problem, g)
		}
	}
	func() { // a middleware outside of us may hand in any reader
		defer func() { _ = recover() }()
		r := httptest.NewRequest(http.MethodPost, "/payments", io.MultiReader(strings.NewReader(large), readerFunc(func([]byte) (int, error) { panic(http.ErrAbortHandler) })))
		r.ContentLength = -1
		r.Header.Set("Idempotency-Key", "reader-panics")
		svc.ServeHTTP(httptest.NewRecorder(), r)
		t.Error("the reader's panic was swallowed")
	}()
	if g := svc.postBody("second", large); g.status != http.StatusCreated || g.mark != "" {
		t.Errorf("when there was room again it got %+v", g)
	}
}

type readerFunc func(p []byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// A request without a key gives its room back too, for a handler in a transaction.
func TestMaxSpoolWithoutAKey(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	svc := newService(t, setup{
		opts:     httponce.Options{MaxSpool: int64(len(large)), Route: httponce.Route{MaxBody: int64(len(large))}},
		handleTx: charges(201, "paid", nil),
	})
	for range 3 {
		if res := send(svc, "POST", "/payments", large); res.StatusCode != http.StatusCreated {
			t.Errorf("it got %d", res.StatusCode)
		}
	}
}
