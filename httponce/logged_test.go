package httponce_test

import (
	"context"
	"maps"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/httponce"
	"github.com/everonce/everonce/oncetest"
)

// The log reports the outcome of a handler that continues after its client was answered, since the client cannot see
// it. Observe reports when all is recorded, so that a service that ends can wait for it.
func TestTheEndOfALateHandlerIsReported(t *testing.T) {
	for name, c := range map[string]struct {
		status int
		logged string
		again  got
	}{
		"unknown": {500, "outcome=unknown", got{status: 409, problem: "outcome-unknown"}},
		"done":    {201, "", got{status: 201, mark: "true"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var running attempts
				svc := newService(t, setup{
					core: everonce.Options{Observer: &running}, opts: httponce.Options{Route: httponce.Route{AnswerWithin: time.Second}},
					handle: func(w http.ResponseWriter, _ *http.Request) {
						time.Sleep(time.Minute)
						w.WriteHeader(c.status)
					},
				})
				if g := svc.post("k"); g.problem != "still-running" {
					t.Errorf("first it got %+v", g)
				}
				if last := svc.last(); last.Outcome != everonce.InProgress || last.Problem != "still-running" {
					t.Errorf("Observe got %+v", last)
				}
				running.Wait()
				if g := svc.post("k"); g.status != c.again.status || g.problem != c.again.problem || g.mark != c.again.mark {
					t.Errorf("when the attempt had ended it got %+v", g)
				}
				synctest.Wait()
				if logs := svc.logs.String(); !strings.Contains(logs, c.logged) || c.logged == "" && logs != "" {
					t.Errorf("logged was %q", logs)
				}
			})
		})
	}
}

// attempts is an Observer that can be waited for.
type attempts struct{ sync.WaitGroup }

func (a *attempts) Start(ctx context.Context, _ everonce.Op) context.Context {
	a.Add(1)
	return ctx
}

func (a *attempts) End(context.Context, everonce.Observation) { a.Done() }

// The log reports that a key remains taken, whether or not the client is still connected. A client that has left, or
// was answered before its handler was done, would not see it.
func TestAReleaseThatFailedIsLoggedWithoutItsClient(t *testing.T) {
	for name, route := range map[string]httponce.Route{
		"the client has gone":      {},
		"it was told to ask again": {AnswerWithin: time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				svc := newService(t, setup{opts: httponce.Options{Route: route}, handle: func(w http.ResponseWriter, _ *http.Request) {
					if route.AnswerWithin == 0 {
						cancel()
					}
					time.Sleep(time.Minute)
					w.WriteHeader(http.StatusTooManyRequests)
				}})
				svc.fail(always(oncetest.FailBefore, oncetest.OpRelease))
				svc.with(ctx, "k", "{}")
				cancel() // as a server does
				time.Sleep(time.Hour)
				synctest.Wait()
				if !strings.Contains(svc.logs.String(), "could not be released") {
					t.Errorf("logged was %q", svc.logs.String())
				}
			})
		})
	}
}

// An operation that becomes unknown is logged once, with the hash that finds its record; its repetitions are not.
func TestAnUnknownOperationIsLogged(t *testing.T) {
	ways := map[string]func(){"5xx": func() {}}
	maps.Copy(ways, unwindings)
	for name, way := range ways {
		svc := newService(t, setup{handle: func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusBadGateway)
			way()
		}})
		for range 3 {
			svc.unwound("k")
		}
		if logs := svc.logs.String(); strings.Count(logs, "level=") != 1 || !strings.Contains(logs, "level=WARN") || !strings.Contains(logs, "unknown") || !strings.Contains(logs, "key=") || strings.Contains(logs, "key= ") {
			t.Errorf("%s: logged was %q, want one line that names the record", name, logs)
		}
	}
}

// A second WriteHeader changes nothing, and an operator hears of it.
func TestSuperfluousWriteHeaderIsLogged(t *testing.T) {
	svc := newService(t, setup{handle: func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusCreated)
		w.WriteHeader(http.StatusConflict)
	}})
	if g := svc.post("k"); g.status != http.StatusCreated || !strings.Contains(svc.logs.String(), "superfluous WriteHeader") {
		t.Errorf("it got %+v, logged was %q", g, svc.logs.String())
	}
}
