package proxy_test

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/everonce/everonce/httponce/proxy"
)

// So many connections are kept unused, and no more.
func TestProxyKeepsSoManyConnections(t *testing.T) {
	const atATime, kept = 6, 4
	opened, closed := make(chan struct{}, 3*atATime), make(chan struct{}, 3*atATime)
	came, skipFailed := make(chan struct{}), make(chan struct{})
	up := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		came <- struct{}{}
		<-skipFailed
		w.WriteHeader(http.StatusCreated)
	}))
	up.Config.ConnState = func(_ net.Conn, s http.ConnState) {
		switch s {
		case http.StateNew:
			opened <- struct{}{}
		case http.StateClosed:
			closed <- struct{}{}
		}
	}
	up.Start()
	t.Cleanup(up.Close)
	u, err := url.Parse(up.URL)
	if err != nil {
		t.Fatal(err)
	}
	srv := newProxy(t, u, nil, &proxy.Options{IdleTimeout: time.Hour, MaxIdle: kept})
	for round := range 2 {
		var posts sync.WaitGroup
		for i := range atATime {
			posts.Go(func() { post(t, srv, "/", fmt.Sprint("k-", round, "-", i), "amount=1") })
		}
		for range atATime {
			<-came
		}
		for range atATime {
			skipFailed <- struct{}{}
		}
		posts.Wait()
		for range atATime - kept { // those that are too many
			<-closed
		}
	}
	if n := len(opened); n != atATime+atATime-kept {
		t.Errorf("%d connections were opened, want %d, and the ones that were not kept", n, atATime)
	}
}

// A connection to the upstream is kept unused for so long and no longer, so that the upstream is not the one that
// closes it, in the moment in which a request is written to it.
func TestProxyIdleConnectionsAreBounded(t *testing.T) {
	for name, tc := range map[string]struct {
		idle   time.Duration
		waits  bool // until the proxy has closed its connection
		opened int
	}{
		"kept":       {time.Hour, false, 1},
		"not kept":   {-1, false, 2},
		"kept short": {10 * time.Millisecond, true, 2},
	} {
		t.Run(name, func(t *testing.T) {
			opened, closed := make(chan struct{}, 10), make(chan struct{}, 10)
			up := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusCreated) }))
			up.Config.ConnState = func(_ net.Conn, s http.ConnState) {
				switch s {
				case http.StateNew:
					opened <- struct{}{}
				case http.StateClosed:
					closed <- struct{}{}
				}
			}
			up.Start()
			t.Cleanup(up.Close)
			u, err := url.Parse(up.URL)
			if err != nil {
				t.Fatal(err)
			}
			srv := newProxy(t, u, nil, &proxy.Options{IdleTimeout: tc.idle})
			for _, key := range []string{"a", "b"} {
				if status, _, body := post(t, srv, "/", key, "amount=1"); status != http.StatusCreated {
					t.Fatalf("%s: %d %s", key, status, body)
				}
				if tc.waits {
					<-closed // the server has no limit, so the proxy closed it
				}
			}
			if n := len(opened); n != tc.opened {
				t.Errorf("%d connections were opened, want %d", n, tc.opened)
			}
		})
	}
}
