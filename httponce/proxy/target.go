package proxy

import (
	"net/url"
	"strings"
)

// isPath reports whether the target of a request is a path, perhaps empty, with a query. net/http also accepts "*", and
// an opaque target ("x:http://h/a"), which would be sent unchanged, whatever was routed; and over HTTP/2 a query with a
// blank, which would end the target of an HTTP/1.1 request.
func isPath(u *url.URL) bool {
	return u.Opaque == "" && (u.Path == "" || u.Path[0] == '/') && !strings.Contains(u.RawQuery, " ")
}

// leavesRoot reports whether an unescaped path leads above its root, for any server: some take a backslash for a slash,
// or ignore what follows a semicolon.
func leavesRoot(path string) bool {
	depth := 0
	for segment := range strings.FieldsFuncSeq(path, func(c rune) bool { return c == '/' || c == '\\' }) {
		name, _, _ := strings.Cut(segment, ";")
		switch name {
		case "", ".":
		case "..":
			if depth--; depth < 0 {
				return true
			}
		default:
			depth++
		}
	}
	return false
}
