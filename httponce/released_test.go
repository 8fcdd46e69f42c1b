package httponce_test

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/httponce"
)

// large is a body that is kept in a file.
var large = strings.Repeat("0123456789", 120<<10)

// The file of a large body is closed when the handler has returned, however it does, and not before: also where its
// client has been answered in the meantime.
func TestFileOfABodyIsTheHandlers(t *testing.T) {
	for name, c := range map[string]struct {
		route httponce.Route
		ends  func()
	}{
		"returns":          {ends: func() {}},
		"panics":           {ends: func() { panic(http.ErrAbortHandler) }},
		"returns too late": {route: httponce.Route{AnswerWithin: time.Millisecond}, ends: func() {}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("TMPDIR", t.TempDir())
			answered, over := make(chan struct{}), make(chan struct{})
			var body io.Reader
			protect, err := httponce.Middleware(newReceiver(t, everonce.Refuse), httponce.Unscoped(), &httponce.Options{Route: c.route})
			if err != nil {
				t.Fatal(err)
			}
			h := protect(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				defer close(over)
				if c.route.AnswerWithin > 0 {
					<-answered
				}
				body = r.Body
				if _, err := io.ReadFull(body, make([]byte, 70<<10)); err != nil {
					t.Errorf("while it runs: %v", err)
				}
				if named, err := os.ReadDir(os.TempDir()); runtime.GOOS != "windows" && (err != nil || len(named) > 0) { // what has no name is gone with its process
					t.Errorf("while it runs there is %v, %v", named, err)
				}
				c.ends()
			}))
			func() {
				defer func() { _ = recover() }()
				send(h, "POST", "/files", large, "Idempotency-Key", "k1")
			}()
			close(answered)
			<-over
			for { // the file is closed a moment after the handler has returned
				if _, err := body.Read(make([]byte, 1)); err != nil {
					if !errors.Is(err, http.ErrBodyReadAfterClose) {
						t.Errorf("afterwards: %v", err)
					}
					return
				}
				runtime.Gosched()
				if c.route.AnswerWithin == 0 {
					t.Fatal("the file is open")
				}
			}
		})
	}
}

// Where a large body cannot be kept, the service is not available, and nothing has happened.
func TestNoRoomForALargeBody(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir()+"/is/not/there")
	var logs strings.Builder
	h, calls := counted(t, &httponce.Options{Log: slog.New(slog.NewTextHandler(&logs, nil))})
	res := send(h, "POST", "/files", large, "Idempotency-Key", "k1")
	if res.StatusCode != http.StatusServiceUnavailable || res.Header.Get("Retry-After") == "" || !strings.Contains(bodyOf(t, res), "store-unavailable") {
		t.Errorf("%d %v", res.StatusCode, res.Header)
	}
	if *calls != 0 || !strings.Contains(logs.String(), `level=ERROR msg="httponce: no room for a request body"`) {
		t.Errorf("%d calls; logged is %s", *calls, &logs)
	}
	if res := send(h, "POST", "/files", "small", "Idempotency-Key", "k1"); res.StatusCode != http.StatusOK {
		t.Errorf("a small one: %d", res.StatusCode)
	}
}

// A body that panics is released, and its panic goes on.
func TestBodyPanics(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	h, calls := counted(t, nil)
	r := httptest.NewRequest(http.MethodPost, "/files", io.MultiReader(strings.NewReader(large), panicking{}))
	r.Header.Set("Idempotency-Key", "k1")
	defer func() {
		if p := recover(); fmt.Sprint(p) != "a panic" || *calls != 0 {
			t.Errorf("recovered %v, %d calls", p, *calls)
		}
	}()
	h.ServeHTTP(httptest.NewRecorder(), r)
	t.Error("it returned")
}

type panicking struct{}

func (panicking) Read([]byte) (int, error) { panic("a panic") }
