package wire

import (
	"fmt"
	"strings"
)

// The default names of the headers.
const (
	DefaultKeyHeader = "Idempotency-Key"
	DefaultMarker    = "Idempotent-Replayed"
)

// IsToken reports whether s is a token (RFC 9110, 5.6.2): a method or the name of a header field.
func IsToken(s string) bool {
	for i := range len(s) {
		if c := s[i]; c <= ' ' || c >= 0x7f || strings.IndexByte(`"(),/:;<=>?@[\]{}`, c) >= 0 {
			return false
		}
	}
	return s != ""
}

// NeverSaved are the headers that belong to one answer. Trailer is not among them: without it a replay could not
// declare its trailers.
var NeverSaved = map[string]bool{
	"Set-Cookie": true, "Set-Cookie2": true, "Clear-Site-Data": true,
	"Www-Authenticate": true, "Authentication-Info": true, "Authorization": true,
	"Proxy-Authenticate": true, "Proxy-Authentication-Info": true, "Proxy-Authorization": true,
	"Connection": true, "Keep-Alive": true, "Proxy-Connection": true, "Te": true, "Transfer-Encoding": true, "Upgrade": true,
	"Date": true,
}

// ServerTakes are the headers that net/http removes from a request's header.
var ServerTakes = map[string]bool{"Host": true, "Transfer-Encoding": true, "Trailer": true}

// RequestsOwn are the other headers of requests that frame them, carry credentials, or are written anew by each hop.
var RequestsOwn = map[string]bool{
	"Cookie": true, "Expect": true, "Accept-Encoding": true, "Http2-Settings": true,
	"Via": true, "Forwarded": true, "X-Forwarded-For": true, "X-Forwarded-Host": true, "X-Forwarded-Proto": true,
}

// HasMeaning reports whether a header has a meaning that neither a key nor a marker may replace.
func HasMeaning(name string) bool {
	return NeverSaved[name] || name == "Location" || strings.HasPrefix(name, "Content-")
}

// CheckKeyHeader refuses a canonical name that cannot be the header of keys.
func CheckKeyHeader(name string) error {
	switch {
	case !IsToken(name):
		return fmt.Errorf("KeyHeader: %q is not the name of a header", name)
	case ServerTakes[name]:
		return fmt.Errorf("KeyHeader: %s never reaches a handler as a header", name)
	case HasMeaning(name) || RequestsOwn[name]:
		return fmt.Errorf("KeyHeader: %s has a meaning already", name)
	}
	return nil
}
