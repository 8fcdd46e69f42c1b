package httponce_test

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/httponce"
	"github.com/everonce/everonce/oncetest"
	"github.com/everonce/everonce/store/memstore"
)

// The trap of peers that fail open when the store is down: here nothing runs unprotected, the answer has a Retry-After,
// and when the store is back the request runs once.
func TestFailsClosedWhenTheStoreIsDown(t *testing.T) {
	for _, mode := range []string{"guarded", "transactional"} {
		t.Run(mode, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := setup{handle: answers(201, "paid"), opts: httponce.Options{RetryAfter: 90 * time.Second}}
				if mode == "transactional" {
					s.handleTx = charges(201, "paid", nil)
				}
				svc := newService(t, s)
				svc.fail(everything)
				for range 3 {
					g := svc.post("k")
					if g.status != 503 || g.problem != "store-unavailable" || g.retryAfter != "90" {
						t.Errorf("it got %+v", g)
					}
				}
				if svc.ran() != 0 {
					t.Errorf("the handler was called %d times", svc.ran())
				}
				svc.fail(nil)
				if g := svc.post("k"); g.status != 201 || g.mark != "" {
					t.Errorf("when the store was back, it got %+v", g)
				}
				if g := svc.post("k"); g.status != 201 || g.mark != "true" || svc.ran() != 1 {
					t.Errorf("and then %+v, after %d calls", g, svc.ran())
				}
			})
		})
	}
}

func openRoute() httponce.Options {
	return httponce.Options{Route: httponce.Route{FailOpen: true}}
}

// A route that fails open lets requests through, says so loudly, and is protected again when the store is back.
func TestFailOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		svc := newService(t, setup{opts: openRoute(), handle: func(w http.ResponseWriter, r *http.Request) {
			if _, ok := everonce.AttemptFrom(r.Context()); ok {
				w.Header().Set("X-Protected", "yes")
			}
			body := new(strings.Builder)
			if _, err := r.Body.Read(make([]byte, 1)); err == nil {
				body.WriteString("it has its body")
			}
			answers(201, body.String())(w, r)
		}})
		svc.fail(everything)
		for range 2 {
			if g := svc.post("k"); g.status != 201 || g.body != "it has its body" || g.header.Get("X-Protected") != "" {
				t.Errorf("it got %+v", g)
			}
			if last := svc.last(); !last.FailedOpen || last.Problem != "" || last.Panicked || last.Status != 0 || last.Outcome != 0 {
				t.Errorf("Observe got %+v", last)
			}
		}
		if n := strings.Count(svc.logs.String(), "level=ERROR"); n != 2 || !strings.Contains(svc.logs.String(), "UNPROTECTED") {
			t.Errorf("logged was %s", svc.logs.String())
		}
		svc.fail(nil)
		if g := svc.post("k"); g.status != 201 || g.header.Get("X-Protected") != "yes" {
			t.Errorf("when the store was back, it got %+v", g)
		}
		if g := svc.post("k"); g.mark != "true" || svc.ran() != 3 {
			t.Errorf("and then %+v, after %d calls", g, svc.ran())
		}
	})
}

// Nothing fails open whose work may have begun, nor where it is not the store that is down.
func TestFailsOpenOnlyBeforeTheWork(t *testing.T) {
	for name, c := range map[string]struct {
		setup  setup
		before func(*service)
		plan   oncetest.Plan
		status int
		runs   int
	}{
		"the completion fails": {setup{handle: answers(201, "paid")}, nil, always(oncetest.FailBefore, oncetest.OpComplete), 201, 1},
		"the release fails":    {setup{handle: answers(429, "later")}, nil, always(oncetest.FailBefore, oncetest.OpRelease), 429, 1},
		"the unknown is not written": {
			setup{handle: answers(500, "sorry")}, nil, always(oncetest.FailBefore, oncetest.OpRelease), 500, 1,
		},
		"the record cannot be read": {setup{handle: answers(201, "paid")}, func(svc *service) {
			if _, err := everonce.Do(svc.t.Context(), svc.recv, keyOf("k"), func(context.Context, *everonce.Attempt) (string, error) { return "", nil }); err != nil {
				svc.t.Error(err)
			}
		}, nil, 503, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c.setup.opts = openRoute()
				svc := newService(t, c.setup)
				if c.before != nil {
					c.before(svc)
				}
				svc.fail(c.plan)
				if g := svc.post("k"); g.status != c.status {
					t.Errorf("it got %+v, want %d", g, c.status)
				}
				if svc.ran() != c.runs || svc.last().FailedOpen {
					t.Errorf("the handler was called %d times, Observe got %+v", svc.ran(), svc.last())
				}
			})
		})
	}
}

// A panic in a handler that was let through goes on, too.
func TestFailOpenPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		svc := newService(t, setup{opts: openRoute(), handle: func(http.ResponseWriter, *http.Request) { panic("broken") }})
		svc.fail(everything)
		if value, _ := svc.unwound("k"); value != "broken" {
			t.Errorf("it panicked with %v", value)
		}
		if last := svc.last(); !last.FailedOpen || !last.Panicked {
			t.Errorf("Observe got %+v", last)
		}
	})
}

// An unprotected request runs as if there were no middleware: as long as it takes, while its client is connected.
func TestFailOpenHasTheServersContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, leave := context.WithCancel(t.Context())
		opts := openRoute()
		opts.Deadline, opts.AnswerWithin = time.Second, time.Second
		svc := newService(t, setup{opts: opts, handle: func(w http.ResponseWriter, r *http.Request) {
			time.Sleep(time.Minute)
			if _, ok := r.Context().Deadline(); ok || r.Context().Err() != nil {
				t.Errorf("its context has a deadline or has ended: %v", r.Context().Err())
			}
			leave()
			<-r.Context().Done()
			w.WriteHeader(http.StatusCreated)
		}})
		svc.fail(everything)
		if g := svc.with(ctx, "k", "{}"); g.status != http.StatusCreated || !svc.last().FailedOpen || svc.last().Duration < time.Minute {
			t.Errorf("it got %+v, and Observe got %+v", g, svc.last())
		}
	})
}

// wrongStore is a store whose claims fail with an error.
type wrongStore struct {
	everonce.Store
	err error
}

func (s wrongStore) Claim(context.Context, driver.ClaimRequest) (driver.ClaimResult, error) {
	return driver.ClaimResult{}, s.err
}

// A store that answers, and says that something is wrong with it, is not down: nothing fails open for as long as that
// stays so.
func TestNothingFailsOpenWhereTheStoreAnswers(t *testing.T) {
	const unreadable = "record-unreadable"
	for wrong, problem := range map[error]string{
		driver.ErrIdentity: "store-unavailable", everonce.ErrSchema: "store-unavailable",
		driver.ErrCorruptRecord: unreadable, driver.ErrNewerRecord: unreadable, everonce.ErrUndecodable: unreadable,
	} {
		recv, err := everonce.NewReceiver(wrongStore{memstore.New(nil), wrong}, everonce.Refuse, nil)
		if err != nil {
			t.Fatal(err)
		}
		protect, err := httponce.Middleware(recv, httponce.Unscoped(), &httponce.Options{Route: httponce.Route{FailOpen: true}})
		if err != nil {
			t.Fatal(err)
		}
		h := protect(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Errorf("%v: the handler was called", wrong) }))
		if g := read(t, again(h, "k")); g.status != http.StatusServiceUnavailable || g.problem != problem {
			t.Errorf("%v: it got %+v", wrong, g)
		}
	}
}
