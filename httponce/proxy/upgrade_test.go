package proxy_test

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"testing"
)

// No client gets a connection to the service on which HTTP continues: requests on it would be neither protected nor
// scoped. The request itself is answered as if it had asked for no upgrade.
func TestProxyUpgradesToNoHTTP(t *testing.T) {
	u := newUpstream(t, func(w http.ResponseWriter, r *http.Request) {
		for _, name := range []string{"Connection", "Upgrade", "Http2-Settings"} {
			if v, ok := r.Header[name]; ok {
				t.Errorf("the upstream got %s: %q", name, v)
			}
		}
		if protocol := r.Header.Get("Upgrade"); protocol != "" {
			w.Header().Set("Connection", "Upgrade")
			w.Header().Set("Upgrade", protocol)
			w.WriteHeader(http.StatusSwitchingProtocols)
		}
	})
	for _, protocol := range []string{"h2c", "H2C", "h2c-14", "HTTP/2.0", "http2", "TLS/1.2", "SPDY/3.1", "websocket, h2c", "tls/1.0 ,x"} {
		for _, head := range []string{"GET / HTTP/1.1\r\n", "POST / HTTP/1.1\r\nContent-Length: 0\r\nIdempotency-Key: k\r\n"} {
			c, err := net.Dial("tcp", newProxy(t, u, nil, nil).Listener.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			io.WriteString(c, head+"Host: service.test\r\nConnection: Upgrade\r\nUpgrade: "+protocol+"\r\nHTTP2-Settings: AAMAAABk\r\n\r\n")
			res, err := http.ReadResponse(bufio.NewReader(c), nil)
			if err != nil || res.StatusCode != http.StatusOK {
				t.Errorf("%s: %s%v, %v", protocol, head, res, err)
			}
		}
	}
}
