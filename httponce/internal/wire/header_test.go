package wire

import (
	"net/http"
	"testing"
)

// A header that already has a meaning, or that never arrives as a header, cannot be the header of keys.
func TestCheckKeyHeader(t *testing.T) {
	for _, name := range []string{
		"no header", "host", "Transfer-Encoding", "trailer", "Content-Length", "content-type", "Content-Encoding", "Connection", "Keep-Alive", "Proxy-Connection",
		"TE", "upgrade", "HTTP2-Settings", "Authorization", "Proxy-Authorization", "cookie", "Expect", "Accept-Encoding", "Via", "Forwarded", "X-Forwarded-For",
		"X-Forwarded-Host", "X-Forwarded-Proto", "Set-Cookie", "Location", "",
	} {
		if err := CheckKeyHeader(http.CanonicalHeaderKey(name)); err == nil {
			t.Errorf("%q is accepted", name)
		}
	}
	for _, name := range []string{"Idempotency-Key", "X-Request-Id"} {
		if err := CheckKeyHeader(name); err != nil {
			t.Error(err)
		}
	}
}
