package proxy

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"testing"
	"time"
)

// An alert tells of a handshake that the server never ended only where nothing was answered on the connection, soon,
// and in TLS 1.3: before, a server looks at the certificate before anything can be written, or, asked for it anew,
// behind a request that it has read.
func TestProxyHandshakeThatNeverEnded(t *testing.T) {
	srv := httptest.NewTLSServer(http.NotFoundHandler())
	t.Cleanup(srv.Close)
	alert := func(a tls.AlertError) error {
		return fmt.Errorf("net/http: %w", &net.OpError{Op: "remote error", Err: a})
	}
	for name, tc := range map[string]struct {
		version  uint16
		answered bool
		age      time.Duration
		err      error
		want     bool
	}{
		"unknown_ca":             {tls.VersionTLS13, false, 0, alert(48), true},
		"certificate_required":   {tls.VersionTLS13, false, 0, alert(116), true},
		"certificate_expired":    {tls.VersionTLS13, false, 0, alert(45), true},
		"something was answered": {tls.VersionTLS13, true, 0, alert(48), false},
		"much later":             {tls.VersionTLS13, false, time.Minute, alert(45), false},
		"TLS 1.2":                {tls.VersionTLS12, false, 0, alert(48), false},
		"internal_error":         {tls.VersionTLS13, false, 0, alert(80), false},
		"close_notify":           {tls.VersionTLS13, false, 0, alert(0), false},
		"our own alert":          {tls.VersionTLS13, false, 0, &net.OpError{Op: "local error", Err: tls.AlertError(48)}, false},
		"a text that is no word": {tls.VersionTLS13, false, 0, errors.New("remote error: tls: bad certificate"), false},
	} {
		conn, err := net.Dial("tcp", srv.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		own := tls.Client(&countedConn{Conn: conn, made: time.Now().Add(-tc.age)}, &tls.Config{InsecureSkipVerify: true, MaxVersion: tc.version})
		if err := own.HandshakeContext(t.Context()); err != nil {
			t.Fatal(err)
		}
		var s, other sending // of requests that share the connection, as in HTTP/2
		if s.handshakeRefused(tc.err, time.Minute) {
			t.Errorf("%s: so, before there was a connection", name)
		}
		s.gotConn(httptrace.GotConnInfo{Conn: own})
		other.gotConn(httptrace.GotConnInfo{Conn: own, Reused: true})
		if tc.answered {
			other.firstByte()
		}
		for _, s := range []*sending{&s, &other} {
			if got := s.handshakeRefused(tc.err, time.Minute); got != tc.want {
				t.Errorf("%s: %v, want %v", name, got, tc.want)
			}
		}
		s.gotConn(httptrace.GotConnInfo{Conn: &countedConn{}})
		if s.handshakeRefused(tc.err, time.Minute) {
			t.Errorf("%s: so, of a connection without TLS", name)
		}
		own.Close()
	}
}
