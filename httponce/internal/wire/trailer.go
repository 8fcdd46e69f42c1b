package wire

import (
	"maps"
	"net/http"
	"strings"
)

// IsPrefixed reports whether name belongs to an undeclared trailer ([http.TrailerPrefix]).
func IsPrefixed(name string) bool { return strings.HasPrefix(name, http.TrailerPrefix) }

// neverTrails are the fields that must not be trailers, because they frame, route, authorize or describe a message (RFC
// 9110, 6.5.1). net/http does not declare them, but sends them if they are undeclared.
var neverTrails = map[string]bool{
	"Content-Length": true, "Transfer-Encoding": true, "Trailer": true,
	"Connection": true, "Keep-Alive": true, "Proxy-Connection": true, "Te": true,
	"Host": true, "Max-Forwards": true, "Expect": true, "Range": true, "Realm": true, "Cache-Control": true, "Pragma": true,
	"Authorization": true, "Proxy-Authorization": true, "Www-Authenticate": true, "Proxy-Authenticate": true,
	"Content-Type": true, "Content-Encoding": true, "Content-Range": true,
}

// Trails reports whether a field, prefixed or not, may be a trailer.
func Trails(name string) bool {
	name = http.CanonicalHeaderKey(strings.TrimPrefix(name, http.TrailerPrefix))
	return !neverTrails[name] && !strings.HasPrefix(name, "If-")
}

// OnlyTrailers removes the fields that may not be trailers from the trailers of a message.
func OnlyTrailers(of http.Header) {
	maps.DeleteFunc(of, func(name string, _ []string) bool { return !Trails(name) })
}

// WithoutWrongTrailers removes the fields that may not be trailers from the undeclared ones in a header.
func WithoutWrongTrailers(h http.Header) {
	maps.DeleteFunc(h, func(name string, _ []string) bool { return IsPrefixed(name) && !Trails(name) })
}
