package httponce

import (
	"net/http"
	"net/url"
	"path"
	"strings"
)

// normalPath returns the path of a URL in the normal form of RFC 3986, section 6.2.2: two paths name the same resource
// if their normal forms are equal. Only escapes of unreserved characters, the letter case of hexadecimal digits, and
// dot segments are normalized. An empty segment is significant, and an escaped slash is not a slash. An empty path is
// "/" (section 6.2.3).
func normalPath(u *url.URL) string {
	if u.RawPath == "" && isPlain(u.Path) {
		return u.Path
	}
	p := u.EscapedPath()
	if u.RawPath != "" && p != u.RawPath { // it has a character that is not allowed, for which net/url gives up every escape in it
		if plain, err := url.PathUnescape(u.RawPath); err == nil && plain == u.Path {
			p = u.RawPath
		}
	}
	if p = withoutDots(normalEscapes(p)); p == "" {
		return "/"
	}
	return p
}

// isPlain reports whether a path is its own normal form, as nearly all are: it has unreserved characters only, and no
// segment that begins with a dot.
func isPlain(p string) bool {
	if p == "" || p[0] != '/' {
		return false
	}
	for i := 1; i < len(p); i++ {
		switch c := p[i]; {
		case c == '.' && p[i-1] == '/':
			return false
		case c != '/' && !unreserved(c):
			return false
		}
	}
	return true
}

// unreserved reports whether a character and its escape are equivalent (RFC 3986, 2.3).
func unreserved(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '-' || c == '.' || c == '_' || c == '~'
}

// normalEscapes returns an escaped path without the escapes of unreserved characters, and the others in capital
// letters. A character that is not allowed is escaped, but for the brackets, which net/url leaves.
func normalEscapes(p string) string {
	const hex = "0123456789ABCDEF"
	b := make([]byte, 0, len(p))
	for i := 0; i < len(p); i++ {
		c, escaped := p[i], false
		if c == '%' {
			plain, _ := url.PathUnescape(p[i : i+3]) //nolint:errcheck // the path is valid
			c, escaped = plain[0], true
			i += 2
		}
		if unreserved(c) || !escaped && strings.IndexByte("/!$&'()*+,;=:@[]", c) >= 0 {
			b = append(b, c)
		} else {
			b = append(b, '%', hex[c>>4], hex[c&15])
		}
	}
	return string(b)
}

// withoutDots resolves the dot segments of a path (RFC 3986, 5.2.4).
func withoutDots(p string) string {
	segments := strings.Split(p, "/")
	kept := segments[:1] // what is before the first slash: nothing
	for i, s := range segments[1:] {
		if s != "." && s != ".." {
			kept = append(kept, s)
			continue
		}
		if s == ".." && len(kept) > 1 {
			kept = kept[:len(kept)-1]
		}
		if i == len(segments)-2 { // "/a/." is "/a/"
			kept = append(kept, "")
		}
	}
	return strings.Join(kept, "/")
}

// cleanPath returns one spelling of all paths that some server might route alike, equivalent or not: it resolves empty
// segments and dot segments, and takes an escaped slash for a slash. It keeps a trailing slash, and letter case. It
// names routes, so that a key used at two spellings finds the same record, whose fingerprint tells the two apart.
func cleanPath(u *url.URL) string {
	if u.RawPath == "" && isPlain(u.Path) && !strings.Contains(u.Path, "//") {
		return u.Path
	}
	cleaned := path.Clean("/" + u.Path)
	if strings.HasSuffix(u.Path, "/") && cleaned != "/" {
		cleaned += "/"
	}
	return (&url.URL{Path: cleaned}).EscapedPath()
}

// targetOf returns the path that the client requested, whatever has been cut off or rewritten on the way here: a router
// may have cut off a prefix that distinguished two routes ([http.StripPrefix]). It adds the query if the handler's
// differs: a middleware may have removed a tenant from it.
func targetOf(r *http.Request, normal string) string {
	target := r.RequestURI
	if target == "" || target == normal {
		return normal
	}
	u, err := url.ParseRequestURI(target)
	if err != nil || u.Path == "" && u.Opaque != "" {
		return target
	}
	path := normalPath(u)
	if u.RawQuery != r.URL.RawQuery {
		path += "?" + u.RawQuery // in an escaped path there is no other
	}
	return path
}

// respelled reports whether an answer does no more than redirect the same request to another spelling of its path.
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
