package httponce_test

import (
	"bufio"
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/httponce"
	"github.com/everonce/everonce/internal/mapdb"
)

// A handler that returns without an answer when its context has ended, as many do, has not said that it is done. The
// 200 that net/http would send for it was not the handler's, and must not be saved.
func TestSilenceBehindTheEndOfTheContextIsNoAnswer(t *testing.T) {
	for name, route := range map[string]httponce.Route{
		"the client left":           {EndWithClient: true},
		"the client left, alone":    {EndWithClient: true, Deadline: -1},
		"the deadline passed":       {Deadline: time.Second},
		"of a handler that is late": {Deadline: time.Minute, AnswerWithin: time.Second},
	} {
		for policy, want := range map[everonce.Policy]got{everonce.Refuse: {status: 409, problem: "outcome-unknown"}, everonce.Reexecute: {status: 201}} {
			synctest.Test(t, func(t *testing.T) {
				ctx, leave := context.WithCancel(context.Background())
				defer leave()
				first := true
				svc := newService(t, setup{policy: policy, opts: httponce.Options{Route: route}, handle: func(w http.ResponseWriter, r *http.Request) {
					if first {
						first = false
						w.Header().Set("X-Half", "done")
						if route.EndWithClient {
							leave()
						}
						<-r.Context().Done()
						return
					}
					w.WriteHeader(http.StatusCreated)
				}})
				func() {
					defer func() {
						if p := recover(); p != http.ErrAbortHandler && route.AnswerWithin == 0 { //nolint:errorlint // the value of a panic
							t.Errorf("%s, %v: its connection was not cut: %v", name, policy, p)
						}
					}()
					if g := svc.with(ctx, "k", "{}"); g.problem != "still-running" {
						t.Errorf("%s, %v: the first got %+v", name, policy, g)
					}
				}()
				time.Sleep(time.Hour)
				if g := svc.post("k"); g.status != want.status || g.problem != want.problem || g.mark != "" {
					t.Errorf("%s, %v: the retry got %+v", name, policy, g)
				}
				synctest.Wait() // the log is whole
				if logs := svc.logs.String(); !strings.Contains(logs, "without an answer") {
					t.Errorf("%s, %v: logged was %s", name, policy, logs)
				}
			})
		}
	}
}

// Silence alone is the 200 that it is in net/http; and what a handler has said counts, whatever became of its context.
func TestSilenceAloneIsAnAnswer(t *testing.T) {
	for name, handle := range map[string]http.HandlerFunc{
		"silence":         func(http.ResponseWriter, *http.Request) {},
		"a write":         func(w http.ResponseWriter, r *http.Request) { <-r.Context().Done(); _, _ = w.Write(nil) },
		"a status":        func(w http.ResponseWriter, r *http.Request) { <-r.Context().Done(); w.WriteHeader(http.StatusOK) },
		"before its end":  func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(http.StatusOK); <-r.Context().Done() },
		"a stream, ended": func(w http.ResponseWriter, r *http.Request) { w.(http.Flusher).Flush(); <-r.Context().Done() },
	} {
		synctest.Test(t, func(t *testing.T) {
			svc := newService(t, setup{handle: handle, opts: httponce.Options{Route: httponce.Route{Deadline: time.Second}}})
			for _, marks := range []string{"", "true elided"} {
				w := httptest.NewRecorder()
				r := httptest.NewRequest(http.MethodPost, "/payments", http.NoBody)
				r.Header.Set("Idempotency-Key", "k")
				svc.ServeHTTP(w, r)
				if mark := w.Header().Get("Idempotent-Replayed"); w.Code != http.StatusOK || (mark == "") != (marks == "") || !strings.Contains(marks, mark) {
					t.Errorf("%s: %d %v", name, w.Code, w.Header())
				}
			}
		})
	}
}

// A handler that says that nothing took hold, and no more, has said that, whatever became of its context; and one that
// has taken the connection over has answered on it.
func TestWhatIsNoSilenceBehindTheEndOfTheContext(t *testing.T) {
	for name, c := range map[string]struct {
		say  func(http.ResponseWriter)
		want string // the marker of the next
		runs int
	}{
		"NotDone": {httponce.NotDone, "", 2},
		"Hijack": {func(w http.ResponseWriter) {
			if _, _, err := http.NewResponseController(w).Hijack(); err != nil {
				t.Error(err)
			}
		}, "elided", 1},
	} {
		synctest.Test(t, func(t *testing.T) {
			runs := 0
			h := protected(t, &httponce.Options{Route: httponce.Route{Deadline: time.Second}}, func(w http.ResponseWriter, r *http.Request) {
				if runs++; runs == 1 {
					c.say(w)
					<-r.Context().Done()
				}
			})
			for _, mark := range []string{"", c.want} {
				w := &hijackable{ResponseRecorder: httptest.NewRecorder()}
				r := httptest.NewRequest(http.MethodPost, "/", http.NoBody)
				r.Header.Set("Idempotency-Key", "k")
				h.ServeHTTP(w, r)
				if got := w.Header().Get("Idempotent-Replayed"); w.Code != http.StatusOK || got != mark {
					t.Errorf("%s: %d, marked %q, want %q", name, w.Code, got, mark)
				}
			}
			if runs != c.runs {
				t.Errorf("%s: the handler ran %d times, want %d", name, runs, c.runs)
			}
		})
	}
}

// hijackable is a ResponseWriter of an unused connection.
type hijackable struct{ *httptest.ResponseRecorder }

func (*hijackable) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	c, _ := net.Pipe()
	return c, bufio.NewReadWriter(bufio.NewReader(c), bufio.NewWriter(c)), nil
}

// A handler that has taken the connection over has begun to answer: its client is not answered in its place.
func TestAHijackIsNotLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := protected(t, &httponce.Options{Route: httponce.Route{AnswerWithin: time.Second}}, func(w http.ResponseWriter, _ *http.Request) {
			if _, _, err := http.NewResponseController(w).Hijack(); err != nil {
				t.Error(err)
			}
			time.Sleep(time.Minute)
		})
		w, begun := &hijackable{ResponseRecorder: httptest.NewRecorder()}, time.Now()
		r := httptest.NewRequest(http.MethodPost, "/", http.NoBody)
		r.Header.Set("Idempotency-Key", "k")
		h.ServeHTTP(w, r)
		if took := time.Since(begun); took != time.Minute || w.Code != http.StatusOK || w.Body.Len() > 0 {
			t.Errorf("after %v on its connection is %d %s", took, w.Code, w.Body)
		}
	})
}

// In a transaction the same silence, returned as nil, rolls back, and the retry runs: half-done work is not committed
// with an answer that the handler did not give. An answer that it did give is kept.
func TestSilenceBehindTheEndOfTheContextIsRolledBack(t *testing.T) {
	for name, route := range map[string]httponce.Route{
		"the client left":     {EndWithClient: true},
		"the deadline passed": {Deadline: time.Second},
	} {
		for _, says := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				ctx, leave := context.WithCancel(context.Background())
				defer leave()
				silent := !says
				svc := newService(t, setup{opts: httponce.Options{Route: route}, handleTx: func(w http.ResponseWriter, r *http.Request, tx *mapdb.Tx) error {
					if !silent {
						w.WriteHeader(http.StatusCreated)
					}
					silent = false
					leave()
					<-r.Context().Done()
					return tx.Add("charge")
				}})
				first := svc.with(ctx, "k", "{}")
				if says != (svc.db.Count("charge") == 1) || !says && first.problem != "not-done" {
					t.Errorf("%s, says %v: %d effects, the first got %+v", name, says, svc.db.Count("charge"), first)
				}
				if g := svc.post("k"); g.status != http.StatusCreated || (g.mark != "") != says || svc.db.Count("charge") != 1 {
					t.Errorf("%s, says %v: %d effects, the retry got %+v", name, says, svc.db.Count("charge"), g)
				}
			})
		}
	}
}
