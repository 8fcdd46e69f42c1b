package httponce

import (
	"net/url"
	"path"
	"strings"
)

// cleanPath returns one spelling of a URL's path, for all that a server would route alike: dots and empty
// segments are resolved, and each segment is escaped in one way. An escaped slash stays
// one, a trailing slash stays, and so does letter case.
func cleanPath(u *url.URL) string {
	segments := strings.Split(u.EscapedPath(), "/")
	for i, s := range segments {
		if plain, err := url.PathUnescape(s); err == nil {
			segments[i] = url.PathEscape(plain)
		}
	}
	p := strings.Join(segments, "/")
	cleaned := path.Clean("/" + p)
	if strings.HasSuffix(p, "/") && cleaned != "/" {
		cleaned += "/"
	}
	return cleaned
}
