package httponce

import (
	"net/http"
	"net/url"
	"path"
	"strings"
)

// cleanPath returns one spelling of a URL's path, for all that a server might route alike: dots and empty
// segments are resolved, and each segment is escaped in one way. An escaped slash stays one, a trailing slash
// stays, and so does letter case.
func cleanPath(u *url.URL) string {
	if u.RawPath == "" && isClean(u.Path) {
		return u.Path
	}
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

// isClean reports whether nothing has to be done to a path, as is so for nearly all: no empty segment, none
// that begins with a dot, and nothing that can be escaped.
func isClean(p string) bool {
	if p == "" || p[0] != '/' {
		return false
	}
	for i := 1; i < len(p); i++ {
		switch c := p[i]; {
		case c == '/' || c == '.':
			if p[i-1] == '/' {
				return false
			}
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '-', c == '_', c == '~':
		default:
			return false
		}
	}
	return true
}

// targetOf returns the path that the client asked for, whatever has been cut off or rewritten on the way here: a
// router may have cut off a prefix that told two routes apart ([http.StripPrefix]). The query follows where it is not the
// one that the handler has: somebody may have taken a tenant out of it.
func targetOf(r *http.Request, cleaned string) string {
	target := r.RequestURI
	if target == "" || target == cleaned {
		return cleaned
	}
	u, err := url.ParseRequestURI(target)
	if err != nil || u.Path == "" && u.Opaque != "" {
		return target
	}
	path := cleanPath(u)
	if u.RawQuery != r.URL.RawQuery {
		path += "?" + u.RawQuery // in an escaped path there is no other
	}
	return path
}

// respelled reports whether an answer does no more than ask for the same request under another spelling of its path.
// [http.ServeMux] answers so before it has called a handler: nothing took hold, and the request that follows, which
// has the same key, is to be handled.
func respelled(r *http.Request, status int, location string) bool {
	if status != http.StatusTemporaryRedirect && status != http.StatusPermanentRedirect {
		return false
	}
	to, err := r.URL.Parse(location)
	if err != nil || to.RawQuery != r.URL.RawQuery || to.Host != r.URL.Host && !strings.EqualFold(to.Host, r.Host) {
		return false
	}
	return to.EscapedPath() != r.URL.EscapedPath() && cleanPath(to) == cleanPath(r.URL)
}
