package proxy

import (
	"net/url"
	"strings"
)

// isPath reports whether the target of a request is a path with a query, or lacks the path. net/http also reads "*", and what has a scheme
// before something that is none ("x:http://h/a"), which goes out as it is, whatever was routed; and over HTTP/2 a query with a blank, behind
// which who reads a line of HTTP/1.1 looks for the version.
func isPath(u *url.URL) bool {
	return u.Opaque == "" && (u.Path == "" || u.Path[0] == '/') && !strings.Contains(u.RawQuery, " ")
}

// climbs reports whether an unescaped path leads above its root, for any server: some take a backslash for a slash, or ignore what
// follows a semicolon.
func climbs(path string) bool {
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
