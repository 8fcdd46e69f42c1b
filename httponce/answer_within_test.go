package httponce_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"regexp"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/everonce/everonce/httponce"
)

// usedWriter tells whether it was used after its ServeHTTP had returned.
type usedWriter struct {
	*httptest.ResponseRecorder
	returned atomic.Bool
	late     atomic.Int64
	informed []http.Header // what was sent with statuses below 200
}

func (w *usedWriter) touch() {
	if w.returned.Load() {
		w.late.Add(1)
	}
}

func (w *usedWriter) Header() http.Header { w.touch(); return w.ResponseRecorder.Header() }

func (w *usedWriter) Write(p []byte) (int, error) { w.touch(); return w.ResponseRecorder.Write(p) }

// WriteHeader notes no status below 200, which to the recorder would be the answer's.
func (w *usedWriter) WriteHeader(status int) {
	if w.touch(); status < http.StatusOK {
		w.informed = append(w.informed, w.ResponseRecorder.Header().Clone())
		return
	}
	w.ResponseRecorder.WriteHeader(status)
}

func (w *usedWriter) Flush()                           { w.touch(); w.ResponseRecorder.Flush() }
func (w *usedWriter) SetReadDeadline(time.Time) error  { w.touch(); return nil }
func (w *usedWriter) SetWriteDeadline(time.Time) error { w.touch(); return nil }
func (w *usedWriter) EnableFullDuplex() error          { w.touch(); return nil }

// serveOnce serves one request whose context ends with ServeHTTP, as a server's does.
func serveOnce(h http.Handler, key string) *usedWriter {
	ctx, cancel := context.WithCancel(context.Background())
	r := httptest.NewRequestWithContext(ctx, "POST", "/", strings.NewReader("the body"))
	r.Header.Set("Idempotency-Key", key)
	w := &usedWriter{ResponseRecorder: httptest.NewRecorder()}
	defer func() {
		w.returned.Store(true)
		cancel()
	}()
	h.ServeHTTP(w, r)
	return w
}

// A client that waited long enough gets a Retry-After. Its handler continues, with its own context and its body, and
// without the ResponseWriter, which is the server's again; its answer is the answer.
func TestAnswerWithin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		late := make(chan map[string]error, 1)
		h := protected(t, &httponce.Options{Route: httponce.Route{AnswerWithin: 5 * time.Second}}, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("X-Early", "e")
			w.WriteHeader(http.StatusEarlyHints) // with the header as it stands; what is answered in the handler's place has nothing of it
			_, _ = io.WriteString(w, "one ")
			time.Sleep(time.Minute)
			if err := r.Context().Err(); err != nil {
				t.Errorf("the handler's context ended: %v", err)
			}
			body, err := io.ReadAll(r.Body)
			if err != nil || string(body) != "the body" {
				t.Errorf("the handler's body: %q, %v", body, err)
			}
			c := http.NewResponseController(w)
			_, _, hijack := c.Hijack()
			w.WriteHeader(http.StatusEarlyHints)
			late <- map[string]error{
				"Flush": c.Flush(), "Hijack": hijack, "SetReadDeadline": c.SetReadDeadline(time.Now()),
				"SetWriteDeadline": c.SetWriteDeadline(time.Now()), "EnableFullDuplex": c.EnableFullDuplex(),
			}
			w.(http.Flusher).Flush()
			w.Header().Set("X-Late", "ignored")
			_, _ = io.WriteString(w, "two")
		})
		begun := time.Now()
		w := serveOnce(h, "k")
		if took := time.Since(begun); took != 5*time.Second || w.Code != http.StatusServiceUnavailable || w.ResponseRecorder.Header().Get("Retry-After") != "5" || w.ResponseRecorder.Header().Get("X-Early") != "" {
			t.Errorf("after %v: %d %v", took, w.Code, w.ResponseRecorder.Header())
		}
		if len(w.informed) != 1 || w.informed[0].Get("X-Early") != "e" {
			t.Errorf("it was informed of %v", w.informed)
		}
		if again := serveOnce(h, "k"); again.Code != http.StatusConflict {
			t.Errorf("while it runs: %d", again.Code)
		}
		for name, err := range <-late {
			if !errors.Is(err, http.ErrHandlerTimeout) {
				t.Errorf("%s of the handler that is late: %v", name, err)
			}
		}
		synctest.Wait()
		done := serveOnce(h, "k")
		if done.Code != http.StatusOK || done.Body.String() != "one two" || done.ResponseRecorder.Header().Get("Idempotent-Replayed") != "true" || done.ResponseRecorder.Header().Get("X-Early") != "e" || done.ResponseRecorder.Header().Get("X-Late") != "" {
			t.Errorf("when it is done: %d %q %v", done.Code, done.Body, done.ResponseRecorder.Header())
		}
		if n := w.late.Load(); n > 0 {
			t.Errorf("the ResponseWriter was used %d times after ServeHTTP had returned", n)
		}
	})
}

// The context of a handler that ends with its client does so while the client waits. That the client was told to ask
// again is not its end: the work goes on, and its answer is recorded.
func TestAnswerWithinAndEndWithClient(t *testing.T) {
	for name, leaves := range map[string]bool{"the client leaves": true, "it is answered": false} {
		synctest.Test(t, func(t *testing.T) {
			calls := 0
			h := protected(t, &httponce.Options{Route: httponce.Route{AnswerWithin: 5 * time.Second, EndWithClient: true}}, func(w http.ResponseWriter, r *http.Request) {
				calls++
				begun := time.Now()
				select {
				case <-r.Context().Done():
				case <-time.After(time.Minute):
				}
				if took := time.Since(begun); leaves && took != time.Second || !leaves && took != time.Minute {
					t.Errorf("%s: the handler's context ended after %v: %v", name, took, context.Cause(r.Context()))
				}
				w.WriteHeader(http.StatusCreated)
			})
			ctx, leave := context.WithCancel(t.Context())
			r := httptest.NewRequestWithContext(ctx, "POST", "/", strings.NewReader("the body"))
			r.Header.Set("Idempotency-Key", "k")
			go func() {
				defer leave() // as a server does when ServeHTTP has returned
				h.ServeHTTP(httptest.NewRecorder(), r)
			}()
			time.Sleep(time.Second)
			if leaves {
				leave()
			}
			time.Sleep(2 * time.Minute)
			if w := serveOnce(h, "k"); w.Code != http.StatusCreated || w.ResponseRecorder.Header().Get("Idempotent-Replayed") != "true" || calls != 1 {
				t.Errorf("%s: then %d %v, %d calls", name, w.Code, w.ResponseRecorder.Header(), calls)
			}
		})
	}
}

// A handler that is in time answers as any does, a stream too: that one is not cut off.
func TestAnswerWithinInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := protected(t, &httponce.Options{Route: httponce.Route{AnswerWithin: 5 * time.Second}}, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Trailer", "X-Sum")
			w.WriteHeader(http.StatusCreated)
			_, _ = io.WriteString(w, "one ")
			if r.Header.Get("Idempotency-Key") == "stream" {
				w.(http.Flusher).Flush()
				time.Sleep(time.Minute)
			}
			w.Header().Set("X-Sum", "s")
			_, _ = io.WriteString(w, "two")
		})
		for _, key := range []string{"k", "stream"} {
			if w := serveOnce(h, key); w.Code != http.StatusCreated || w.Body.String() != "one two" || w.Result().Trailer.Get("X-Sum") != "s" {
				t.Errorf("%s: %d %q %v", key, w.Code, w.Body, w.Result().Trailer)
			}
		}
		if w := serveOnce(h, "k"); w.Body.String() != "one two" || w.Result().Trailer.Get("X-Sum") != "s" {
			t.Errorf("the replay: %q %v", w.Body, w.Result().Trailer)
		}
	})
}

// A late handler's writes beyond the limit are dropped: there is no client to stream to.
func TestALargeAnswerThatIsLateIsElided(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := protected(t, &httponce.Options{Route: httponce.Route{AnswerWithin: time.Second, MaxAnswer: 1000}}, func(w http.ResponseWriter, _ *http.Request) {
			time.Sleep(time.Minute)
			w.Header().Set("Location", "/1")
			for range 100 {
				if n, err := io.WriteString(w, strings.Repeat("x", 100)); n != 100 || err != nil {
					t.Error(n, err)
				}
			}
		})
		w := serveOnce(h, "k")
		time.Sleep(2 * time.Minute)
		if done := serveOnce(h, "k"); done.Code != http.StatusOK || done.ResponseRecorder.Header().Get("Idempotent-Replayed") != "elided" || done.ResponseRecorder.Header().Get("Location") != "/1" || w.late.Load() > 0 {
			t.Errorf("%d %v", done.Code, done.ResponseRecorder.Header())
		}
	})
}

// A handler that is late and switches protocols does not touch the ResponseWriter, which is the server's again.
func TestA101ThatIsLateIsNotSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := protected(t, &httponce.Options{Route: httponce.Route{AnswerWithin: time.Second}}, func(w http.ResponseWriter, _ *http.Request) {
			time.Sleep(time.Minute)
			w.WriteHeader(http.StatusEarlyHints) // nor is this
			w.Header().Set("Upgrade", "x")
			w.WriteHeader(http.StatusSwitchingProtocols)
			if _, _, err := http.NewResponseController(w).Hijack(); !errors.Is(err, http.ErrHandlerTimeout) {
				t.Errorf("its Hijack: %v", err)
			}
		})
		w := serveOnce(h, "k")
		time.Sleep(2 * time.Minute)
		if n := w.late.Load(); n > 0 || w.Code != http.StatusServiceUnavailable {
			t.Errorf("it got %d, and the ResponseWriter was used %d times after ServeHTTP had returned", w.Code, n)
		}
		if done := serveOnce(h, "k"); done.Code != http.StatusOK || done.ResponseRecorder.Header().Get("Idempotent-Replayed") != "elided" {
			t.Errorf("a duplicate: %d %v", done.Code, done.ResponseRecorder.Header())
		}
	})
}

// A panic, the one that aborts included, and a Goexit are the serving goroutine's; and are logged, or silent, where
// that is gone.
func TestAPanicInAGoroutineOfItsOwn(t *testing.T) {
	for name, tc := range map[string]struct {
		end    func()
		value  any
		logged bool
	}{
		"panic": {func() { panic("boom") }, "boom", true}, "abort": {func() { panic(http.ErrAbortHandler) }, http.ErrAbortHandler, false}, "Goexit": {runtime.Goexit, nil, false},
	} {
		for _, late := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				var log bytes.Buffer
				opts := &httponce.Options{Log: slog.New(slog.NewTextHandler(&log, nil)), Route: httponce.Route{AnswerWithin: time.Second}}
				h := protected(t, opts, func(http.ResponseWriter, *http.Request) {
					if late {
						time.Sleep(time.Minute)
					}
					tc.end()
				})
				var got any
				returned := false
				done := make(chan struct{})
				go func() {
					defer close(done)
					defer func() {
						if !returned {
							got = recover()
						}
					}()
					serveOnce(h, "k")
					returned = true
				}()
				<-done
				time.Sleep(2 * time.Minute)
				synctest.Wait()
				if returned != late || got != tc.value && !late {
					t.Errorf("%s, late %v: ServeHTTP returned: %v, panicked with %v", name, late, returned, got)
				}
				if logged := regexp.MustCompile(`the handler panicked" route=\S+ key=\w+ panic=boom`).MatchString(log.String()); logged != tc.logged {
					t.Errorf("%s, late %v: logged %q", name, late, log.String())
				}
				if w := serveOnce(h, "k"); w.Code != http.StatusConflict || !strings.Contains(w.Body.String(), "outcome-unknown") {
					t.Errorf("%s, late %v: the next request gets %d %s", name, late, w.Code, w.Body)
				}
			})
		}
	}
}

// Inside a limit that answers in the place of a handler and does not wait for it, the handler goes on, and its answer
// is kept.
func TestInsideOfATimeoutHandler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls := 0
		h := http.TimeoutHandler(protected(t, nil, func(w http.ResponseWriter, _ *http.Request) {
			calls++
			time.Sleep(time.Minute)
			w.WriteHeader(http.StatusCreated)
		}), time.Second, "later")
		for _, want := range []struct {
			status int
			marker string
		}{{503, ""}, {409, ""}, {201, "true"}} {
			if w := serveOnce(h, "k"); w.Code != want.status || w.Header().Get("Idempotent-Replayed") != want.marker {
				t.Errorf("it got %d %v, want %+v", w.Code, w.Header(), want)
			}
			if want.status == http.StatusConflict {
				time.Sleep(time.Hour)
			}
		}
		if calls != 1 {
			t.Errorf("called %d times", calls)
		}
	})
}

// Without AnswerWithin a handler runs in the goroutine of its request.
func TestNoGoroutineOfItsOwnWithoutAnswerWithin(t *testing.T) {
	var inside string
	h := protected(t, nil, func(http.ResponseWriter, *http.Request) { inside = goroutine() })
	again(h, "k")
	if outside := goroutine(); inside != outside {
		t.Errorf("%s, and the request's is %s", inside, outside)
	}
}

func goroutine() string {
	b := make([]byte, 64)
	head, _, _ := strings.Cut(string(b[:runtime.Stack(b, false)]), " [")
	return head
}

// Trap: completion under the request's context. The client goes, the work goes on, and its answer is recorded.
func TestTrapACompletionSurvivesTheClient(t *testing.T) {
	for name, route := range map[string]httponce.Route{"": {}, "with AnswerWithin": {AnswerWithin: time.Hour}, "until the end": {EndWithClient: true}} {
		ctx, leave := context.WithCancel(context.Background())
		calls := 0
		h := protected(t, &httponce.Options{Route: route}, func(w http.ResponseWriter, r *http.Request) {
			calls++
			leave()
			ended := r.Context().Err() != nil
			if route.EndWithClient {
				<-r.Context().Done()
				ended = false
			}
			if ended {
				t.Errorf("%s: the handler's context ended with the client's: %v", name, context.Cause(r.Context()))
			}
			w.WriteHeader(http.StatusCreated)
		})
		r := httptest.NewRequestWithContext(ctx, "POST", "/", strings.NewReader("{}"))
		r.Header.Set("Idempotency-Key", "k")
		h.ServeHTTP(httptest.NewRecorder(), r)
		if res := again(h, "k"); res.StatusCode != http.StatusCreated || res.Header.Get("Idempotent-Replayed") != "true" || calls != 1 {
			t.Errorf("%s: %d %v, %d calls", name, res.StatusCode, res.Header, calls)
		}
	}
}

// The handler's context is its attempt's: its values, its own deadline, and an end when the handler has returned.
func TestTheContextOfAHandler(t *testing.T) {
	for _, withClient := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			type key struct{}
			var kept, unused context.Context
			h := protected(t, &httponce.Options{Route: httponce.Route{Deadline: time.Minute, EndWithClient: withClient}}, func(w http.ResponseWriter, r *http.Request) {
				defer w.WriteHeader(http.StatusNoContent)
				ctx := r.Context()
				if ctx.Value(key{}) != "value" {
					t.Error("the values of the request's context are lost")
				}
				if r.Header.Get("Idempotency-Key") == "unused" {
					unused = ctx
					return
				}
				if end, ok := ctx.Deadline(); !ok || time.Until(end) != time.Minute {
					t.Errorf("Deadline: %v, %v", end, ok)
				}
				child, cancel := context.WithCancel(ctx)
				defer cancel()
				kept = ctx
				if ctx.Err() != nil || context.Cause(ctx) != nil {
					t.Error(ctx.Err(), context.Cause(ctx))
				}
				select {
				case <-child.Done():
				case <-time.After(time.Hour):
					t.Error("its deadline did not come")
				}
				if !errors.Is(ctx.Err(), context.DeadlineExceeded) || !errors.Is(context.Cause(child), context.DeadlineExceeded) {
					t.Error(ctx.Err(), context.Cause(child))
				}
			})
			for _, k := range []string{"k", "unused"} {
				r := httptest.NewRequestWithContext(context.WithValue(t.Context(), key{}, "value"), "POST", "/", nil)
				r.Header.Set("Idempotency-Key", k)
				h.ServeHTTP(httptest.NewRecorder(), r)
			}
			if kept.Err() == nil || unused.Err() == nil {
				t.Errorf("the contexts of handlers that have returned: %v, %v", kept.Err(), unused.Err())
			}
			without := protected(t, &httponce.Options{Route: httponce.Route{Deadline: -1, EndWithClient: withClient}}, func(_ http.ResponseWriter, r *http.Request) {
				time.Sleep(time.Hour)
				if _, ok := r.Context().Deadline(); ok || r.Context().Err() != nil {
					t.Errorf("without a deadline: %v", r.Context().Err())
				}
			})
			again(without, "k")
		})
	}
}
