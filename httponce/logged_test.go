package httponce_test

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/everonce/everonce/httponce"
	"github.com/everonce/everonce/oncetest"
)

// That a key stays taken is told to an operator whether or not the client is still there: a client that has gone, or that was
// answered before its handler was done, is the last one who would see it.
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
