package wire

import (
	"maps"
	"net/http"
	"strings"
)

// IsPrefixed reports whether a name is that of a trailer which was not declared.
func IsPrefixed(name string) bool { return strings.HasPrefix(name, http.TrailerPrefix) }

// neverTrails are the fields that count before the body comes, and so never behind it (RFC 9110, 6.5.1): by them a message is framed,
// routed, allowed and read. net/http declares none of them, and sends those that were not declared as they are.
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

// OnlyTrailers leaves of the trailers of a message those that may be some.
func OnlyTrailers(of http.Header) {
	maps.DeleteFunc(of, func(name string, _ []string) bool { return !Trails(name) })
}

// WithoutWrongTrailers removes from the header of an answer the trailers that may be none.
func WithoutWrongTrailers(h http.Header) {
	maps.DeleteFunc(h, func(name string, _ []string) bool { return IsPrefixed(name) && !Trails(name) })
}
