package proxy_test

import (
	"net/http"
	"testing"
)

// A request does not leave the path that the upstream was given with, however it spells that; without such a path it is
// the service's own business.
func TestProxyStaysBelowTheUpstreamsPath(t *testing.T) {
	for path, leaves := range map[string]bool{
		"/../admin": true, "/%2e%2e/admin": true, "/a/../../admin": true, "/..%2Fadmin": true, "/..;x=1/admin": true, "/;x/../admin": true, "/..%5Cadmin": true, "//../admin": true, "/a/./../..": true, "/..": true,
		"/": false, "/a/../b": false, "/a/b/../../c": false, "/...": false, "/a..b": false, "/..a": false,
	} {
		for _, key := range []string{"", "k"} {
			for _, below := range []string{"/api", ""} {
				calls := 0
				u := newUpstream(t, func(w http.ResponseWriter, _ *http.Request) {
					calls++
					w.WriteHeader(http.StatusCreated)
				})
				u.Path = below
				want, called := http.StatusCreated, 1
				if leaves && below != "" {
					want, called = http.StatusBadRequest, 0
				}
				srv := newProxy(t, u, nil, nil)
				if got, _, body := post(t, srv, path, key, "{}"); got != want || calls != called {
					t.Errorf("%s, key %q, below %q: %d %s, %d calls, want %d", path, key, below, got, body, calls, want)
				}
				if _, header, _ := post(t, srv, path, key, "{}"); calls == 0 && header.Get("Idempotent-Replayed") != "" {
					t.Errorf("%s, key %q: what was never sent is kept as the answer", path, key)
				}
			}
		}
	}
}
