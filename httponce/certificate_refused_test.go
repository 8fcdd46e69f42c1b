package httponce

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"testing"
)

// An alert tells of a handshake that the server never ended only where nothing was answered on the connection, and in TLS 1.3: before, a server
// looks at the certificate before anything can be written, or, asked for it anew, behind a request that it has read.
func TestProxyHandshakeThatNeverEnded(t *testing.T) {
	srv := httptest.NewTLSServer(http.NotFoundHandler())
	t.Cleanup(srv.Close)
	alert := func(a tls.AlertError) error {
		return fmt.Errorf("net/http: %w", &net.OpError{Op: "remote error", Err: a})
	}
	for name, tc := range map[string]struct {
		version  uint16
		answered bool
		err      error
		want     bool
	}{
		"unknown_ca":             {tls.VersionTLS13, false, alert(48), true},
		"certificate_required":   {tls.VersionTLS13, false, alert(116), true},
		"certificate_expired":    {tls.VersionTLS13, false, alert(45), true},
		"something was answered": {tls.VersionTLS13, true, alert(48), false},
		"TLS 1.2":                {tls.VersionTLS12, false, alert(48), false},
		"internal_error":         {tls.VersionTLS13, false, alert(80), false},
		"close_notify":           {tls.VersionTLS13, false, alert(0), false},
		"of our own":             {tls.VersionTLS13, false, &net.OpError{Op: "local error", Err: tls.AlertError(48)}, false},
		"a text that is no word": {tls.VersionTLS13, false, errors.New("remote error: tls: bad certificate"), false},
	} {
		conn, err := net.Dial("tcp", srv.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		own := tls.Client(&countedConn{Conn: conn}, &tls.Config{InsecureSkipVerify: true, MaxVersion: tc.version})
		if err := own.HandshakeContext(t.Context()); err != nil {
			t.Fatal(err)
		}
		var s, other sending // of requests that share the connection, as those of HTTP/2 do
		if s.unshaken(tc.err) {
			t.Errorf("%s: so, before there was a connection", name)
		}
		s.gotConn(httptrace.GotConnInfo{Conn: own})
		other.gotConn(httptrace.GotConnInfo{Conn: own, Reused: true})
		if tc.answered {
			other.firstByte()
		}
		for _, s := range []*sending{&s, &other} {
			if got := s.unshaken(tc.err); got != tc.want {
				t.Errorf("%s: %v, want %v", name, got, tc.want)
			}
		}
		s.gotConn(httptrace.GotConnInfo{Conn: &countedConn{}})
		if s.unshaken(tc.err) {
			t.Errorf("%s: so, of a connection without TLS", name)
		}
		own.Close()
	}
}
