package httponce

import (
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/everonce/everonce"
)

func (s *settings) addRoutes(routes map[string]Route) error {
	if len(routes) == 0 {
		return nil
	}
	s.matcher = http.NewServeMux()
	patterns := make([]string, 0, len(routes))
	for pattern := range routes {
		patterns = append(patterns, pattern)
	}
	slices.Sort(patterns) // so that an error is the same at every start
	for _, pattern := range patterns {
		if pattern == "" { // an error would name all requests
			return fmt.Errorf("httponce: route %q: %w: the pattern is empty", pattern, everonce.ErrInvalidArgument)
		}
		rt, err := routes[pattern].compile(pattern, s)
		if err != nil {
			return (&route{pattern: pattern}).in(err)
		}
		if err := handlePattern(s.matcher, rt); err != nil {
			return rt.in(err)
		}
		if err := rt.checkMethod(); err != nil {
			return rt.in(err)
		}
		s.routes = append(s.routes, rt)
	}
	return nil
}

// checkMethod rejects a pattern whose method takes no key: its author believes its requests protected.
func (rt *route) checkMethod() error {
	if len(rt.methods) == 0 || len(rt.keyMethods()) > 0 {
		return nil
	}
	method, _ := cutMethod(rt.pattern)
	return fmt.Errorf("%w: %s takes no key, so no request of this route would be protected (add it to Methods, or exempt the route by an empty list)",
		everonce.ErrInvalidArgument, method)
}

// takesKey reports whether requests of this method take a key on any route.
func (s *settings) takesKey(method string) bool {
	return slices.ContainsFunc(s.routes, func(rt *route) bool { return slices.Contains(rt.keyMethods(), method) })
}

func (rt *route) in(err error) error {
	if rt.pattern == "" {
		return err
	}
	return fmt.Errorf("httponce: route %q: %w", rt.pattern, err)
}

// registeredAt is where the mux says that a pattern came from: a line of this file.
var registeredAt = regexp.MustCompile(` \(registered at [^)]*\)`)

// handlePattern registers a route. http.ServeMux panics on a pattern that it cannot read, or that
// conflicts with another.
func handlePattern(mux *http.ServeMux, rt *route) (err error) {
	defer func() {
		if p := recover(); p != nil {
			text := registeredAt.ReplaceAllString(fmt.Sprint(p), "")
			err = fmt.Errorf("%w: %s", everonce.ErrInvalidArgument, strings.Join(strings.Fields(text), " "))
		}
	}()
	mux.Handle(withPlainHost(rt.pattern), rt)
	return nil
}

// withPlainHost returns a pattern for hosts as plainHost writes them.
func withPlainHost(pattern string) string {
	_, rest := cutMethod(pattern)
	host := max(strings.IndexByte(rest, '/'), 0)
	return pattern[:len(pattern)-len(rest)] + plainHost(rest[:host]) + rest[host:]
}

// plainHost returns a host in one spelling: in lower case, and without the dot that may end a full name. A mux takes
// these spellings for different hosts.
func plainHost(host string) string {
	host = strings.ToLower(host)
	if name, port, ok := strings.Cut(host, ".:"); ok {
		return name + ":" + port
	}
	return strings.TrimSuffix(host, ".")
}

// ServeHTTP is never called: a route is registered to be found.
func (rt *route) ServeHTTP(http.ResponseWriter, *http.Request) {}

// routeOf returns the settings of a request and the name of its route.
func (s *settings) routeOf(r *http.Request) (*route, string) {
	rt := s.match(r)
	if rt.Name != nil {
		if name := rt.Name(r); name != "" {
			return rt, name
		}
	}
	switch {
	case rt.pattern != "":
		return rt, withoutMethod(rt.pattern)
	case r.Pattern != "":
		return rt, withoutMethod(r.Pattern)
	}
	return rt, cleanPath(r.URL)
}

func (s *settings) match(r *http.Request) *route {
	if s.matcher == nil {
		return s.base
	}
	if rt := s.matched(r); rt != nil {
		return rt
	}
	// Where the path is not clean a mux would redirect, and another server go on with what it makes of it.
	if cleaned := cleanPath(r.URL); cleaned != r.URL.EscapedPath() && r.Method != http.MethodConnect {
		if u, err := url.ParseRequestURI(cleaned); err == nil {
			if rt := s.matched(&http.Request{Method: r.Method, Host: r.Host, URL: u}); rt != nil {
				return rt
			}
		}
	}
	return s.base
}

// matched returns the route whose pattern a request matches. The mux has its own handlers for requests that it does not
// know, and for redirects to its clean path or to its trailing slash.
func (s *settings) matched(r *http.Request) *route {
	if host := plainHost(r.Host); host != r.Host {
		r = &http.Request{Method: r.Method, Host: host, URL: r.URL}
	}
	h, _ := s.matcher.Handler(r)
	rt, _ := h.(*route)
	return rt
}

// withoutMethod returns the host and path of a pattern: the request's method is kept separately.
func withoutMethod(pattern string) string {
	_, rest := cutMethod(pattern)
	return rest
}

// cutMethod returns the method of a pattern, empty where it names none, and its host and path.
func cutMethod(pattern string) (method, rest string) {
	if i := strings.IndexAny(pattern, " \t"); i >= 0 {
		return pattern[:i], strings.TrimLeft(pattern[i:], " \t")
	}
	return "", pattern
}
