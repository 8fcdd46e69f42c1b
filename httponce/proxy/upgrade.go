package proxy

import (
	"net/http"
	"strings"
)

// upgradeWithoutHTTP takes the request for an upgrade away if it names a protocol behind which HTTP goes on. A server
// may ignore such a request (RFC 9110, 7.8), and here it must: on that connection a client would send its next requests
// to the upstream past the middleware, with no key demanded, and under whatever name a hop in front would have taken
// from them.
func upgradeWithoutHTTP(h http.Header) {
	if carriesHTTP(h.Get("Upgrade")) {
		h.Del("Connection")
		h.Del("Upgrade")
	}
	h.Del("HTTP2-Settings") // which goes with h2c alone, whatever Connection says of it
}

// carriesHTTP reports whether a list of protocols has one that carries requests: a version of HTTP, or TLS (RFC 2817),
// behind which HTTP goes on.
func carriesHTTP(protocols string) bool {
	for protocol := range strings.SplitSeq(protocols, ",") {
		name, _, _ := strings.Cut(strings.ToLower(strings.Trim(protocol, " \t")), "/")
		switch {
		case strings.HasPrefix(name, "http"), name == "tls", name == "spdy", strings.HasPrefix(name, "h2"):
			return true
		}
	}
	return false
}
