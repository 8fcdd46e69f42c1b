package proxy_test

import (
	"bytes"
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/httponce"
	"github.com/everonce/everonce/httponce/proxy"
)

// A proxy adds itself to Via, by a unique name; one proxy behind the other is not a loop. Via is not part of an
// operation.
func TestProxySignsVia(t *testing.T) {
	var got []string
	calls := 0
	service := newUpstream(t, func(w http.ResponseWriter, r *http.Request) {
		calls++
		got = r.Header["Via"]
		w.WriteHeader(http.StatusCreated)
	})
	inner := newProxy(t, service, nil, nil)
	outer := newProxy(t, &url.URL{Scheme: "http", Host: inner.Listener.Addr().String()}, nil, nil)
	for n, key := range []string{"", "k"} {
		if status, _, body := post(t, outer, "/", key, "", "Via", "1.0 fred, 1.1 everonce", "Connection", "x"); status != http.StatusCreated || calls != n+1 {
			t.Fatalf("%d %s, %d calls", status, body, calls)
		}
		if len(got) != 3 || got[0] != "1.0 fred, 1.1 everonce" || got[1] == got[2] ||
			slices.ContainsFunc(got[1:], func(v string) bool {
				return !strings.HasPrefix(v, "1.1 everonce-") || len(v) != len("1.1 everonce-")+26
			}) {
			t.Errorf("the service got %q", got)
		}
	}
	if status, header, _ := post(t, outer, "/", "k", "", "Via", "1.1 another"); status != http.StatusCreated || header.Get("Idempotent-Replayed") != "true" || calls != 2 {
		t.Errorf("a repetition that came another way: %d %v, %d calls", status, header, calls)
	}
}

// A request that its upstream leads back to the proxy, directly or through another proxy, ends there. The key gets no
// answer from it, whatever is saved otherwise.
func TestProxyEndsALoop(t *testing.T) {
	for name, tc := range map[string]struct {
		hops       int
		key        string
		downstream bool
		want       []string // of each request that is sent
		passed     int64    // requests that reached a proxy
	}{
		"at once":                      {1, "", false, []string{"508 upstream-loop", "508 upstream-loop"}, 4},
		"by another":                   {2, "", false, []string{"508 upstream-loop"}, 3},
		"with a key":                   {1, "k", false, []string{"409 in-progress", "409 in-progress"}, 4},
		"with another key":             {1, "k", true, []string{"508 upstream-loop", "409 outcome-unknown"}, 3},
		"with another key, by a third": {2, "k", true, []string{"508 upstream-loop", "409 outcome-unknown"}, 4},
	} {
		var passed atomic.Int64
		told := make(chan string, 9)
		servers := make([]*httptest.Server, tc.hops)
		for i := range servers {
			servers[i] = httptest.NewUnstartedServer(nil)
		}
		for i, srv := range servers {
			opts := &httponce.Options{Profile: httponce.ProfileStripe, Route: httponce.Route{Wait: -1}, Log: slog.New(slog.DiscardHandler), Observe: func(_ context.Context, s httponce.Served) {
				told <- s.Outcome.String() + " " + s.Problem
			}}
			protect, err := httponce.Middleware(newReceiver(t, everonce.Refuse), httponce.Unscoped(), opts)
			if err != nil {
				t.Fatal(err)
			}
			next := &url.URL{Scheme: "http", Host: servers[(i+1)%tc.hops].Listener.Addr().String()}
			p, err := proxy.New(next, &proxy.Options{DownstreamKey: tc.downstream, Log: slog.New(slog.DiscardHandler)})
			if err != nil {
				t.Fatal(err)
			}
			once := protect(p)
			srv.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if passed.Add(1) > 9 {
					http.Error(w, "it goes round for ever", http.StatusTeapot)
					return
				}
				once.ServeHTTP(w, r)
			})
			srv.Start()
			t.Cleanup(srv.Close)
		}
		for n, want := range tc.want {
			status, _, body := post(t, servers[0], "/", tc.key, "{}")
			code, problem, _ := strings.Cut(want, " ")
			if code != strconv.Itoa(status) || !strings.Contains(body, "/"+problem+".md") {
				t.Errorf("%s, request %d: %d %s, want %s", name, n+1, status, body, want)
			}
		}
		if n := passed.Load(); n != tc.passed {
			t.Errorf("%s: the proxies got %d requests, want %d", name, n, tc.passed)
		}
		if tc.downstream { // where the loop was found nothing was sent
			if first := <-told; first != "failed upstream-loop" {
				t.Errorf("%s: Observe got %q", name, first)
			}
		}
	}
}

// The log says that it is a loop: an upstream that was not asked has not failed to answer.
func TestProxyLogsALoop(t *testing.T) {
	srv := httptest.NewUnstartedServer(nil)
	var logs bytes.Buffer
	p, err := proxy.New(&url.URL{Scheme: "http", Host: srv.Listener.Addr().String()}, &proxy.Options{Log: slog.New(slog.NewTextHandler(&logs, nil))})
	if err != nil {
		t.Fatal(err)
	}
	srv.Config.Handler = p
	srv.Start()
	t.Cleanup(srv.Close)
	post(t, srv, "/payments", "", "{}")
	if got := logs.String(); !strings.Contains(got, `msg="proxy: the upstream leads back to this proxy" method=POST path=/payments problem=upstream-loop`) || strings.Contains(got, "no answer") {
		t.Errorf("logged was %q", got)
	}
}
