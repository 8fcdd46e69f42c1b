package proxy

import (
	"log/slog"
	"net/url"
	"strings"
	"testing"
)

// A proxy whose upstream is itself would send a request without a key round and round, until it has no connections
// left.
func TestUpstreamIsNotTheProxyItself(t *testing.T) {
	for upstream, listen := range map[string]map[string]bool{
		"http://127.0.0.1:8080": {
			":8080": true, "0.0.0.0:8080": true, "[::]:8080": true, "127.0.0.1:8080": true, "localhost:8080": true,
			":8081": false, "192.0.2.1:8080": false, "127.0.0.2:8080": false, "[::1]:8080": false, "proxy:8080": false, "8080": false, ":0": false,
		},
		"http://localhost:8080/path": {":8080": true, "127.0.0.1:8080": true, "[::1]:8080": true, "192.0.2.1:8080": false},
		"http://[::1]:8080":          {"[::1]:8080": true, "0.0.0.0:8080": false, "127.0.0.1:8080": false},
		"http://127.0.0.1":           {":80": true, ":443": false},
		"https://127.0.0.1":          {":443": true, ":80": false},
		"http://192.0.2.1:8080":      {":8080": false, "192.0.2.1:8080": true},
		"http://service:8080":        {":8080": false, "proxy:8080": false},
		"unix:/run/a.sock":           {"unix:/run/a.sock": true, "unix:///run/a.sock": true, "unix:/run/x/../a.sock": true, "unix:/run/b.sock": false, ":8080": false},
		"http://127.0.0.1:8081":      {"unix:/run/a.sock": false},
	} {
		u, err := url.Parse(upstream)
		if err != nil {
			t.Fatal(err)
		}
		for addr, want := range listen {
			if got := isItself(addr, u); got != want {
				t.Errorf("%s behind a proxy on %s: %v, want %v", upstream, addr, got, want)
			}
		}
	}
	c := configOf(t, "--listen=:8080", "--admin=none", "--store=memory:", "--upstream=http://localhost:8080")
	if _, err := New(t.Context(), c, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), "upstream: ") {
		t.Errorf("it starts: %v", err)
	}
}
