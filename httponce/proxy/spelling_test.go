package proxy_test

import (
	"io"
	"net/http"
	"testing"

	"github.com/everonce/everonce/httponce"
)

// Paths that some servers route alike, and that are not equivalent, are different requests to the service behind the
// proxy: the same key on the other one is refused, and each request goes out with the path that it came with.
func TestProxyTellsSpellingsApart(t *testing.T) {
	for name, opts := range map[string]*httponce.Options{
		"by path":    nil,
		"by pattern": {Routes: map[string]httponce.Route{"POST /charges": {}, "POST /things/{rest...}": {}}},
	} {
		for _, pair := range [][2]string{{"/charges", "//charges"}, {"/things/a/b", "/things/a//b"}, {"/things/a/b", "/things/a%2Fb"}} {
			for _, c := range [][2]string{pair, {pair[1], pair[0]}} {
				srv := newProxy(t, newUpstream(t, func(w http.ResponseWriter, r *http.Request) {
					w.WriteHeader(http.StatusCreated)
					io.WriteString(w, r.RequestURI)
				}), opts, nil)
				if status, _, body := post(t, srv, c[0], "k", "{}"); status != http.StatusCreated || body != c[0] {
					t.Errorf("%s: %s got %d %s", name, c[0], status, body)
				}
				if status, _, body := post(t, srv, c[1], "k", "{}"); status != http.StatusUnprocessableEntity {
					t.Errorf("%s: after %s, %s got %d %s", name, c[0], c[1], status, body)
				}
				if status, h, body := post(t, srv, c[0], "k", "{}"); status != http.StatusCreated || body != c[0] || h.Get("Idempotent-Replayed") != "true" {
					t.Errorf("%s: again %s got %d %s %v", name, c[0], status, body, h)
				}
			}
		}
	}
}
