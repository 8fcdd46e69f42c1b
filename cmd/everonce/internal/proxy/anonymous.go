package proxy

import (
	"errors"
	"net/http"
	"strings"
	"sync"

	"github.com/everonce/everonce/cmd/everonce/internal/proxy/config"
	"github.com/everonce/everonce/cmd/everonce/internal/proxy/principal"
	"github.com/everonce/everonce/httponce"
)

// principalOf returns the principal of the route of a pattern, "" for all others.
func (s *Server) principalOf(pattern string, route config.Route) (httponce.Principal, error) {
	source := route.Principal
	find, err := principal.New(source, s.secret, route.PrincipalRequired)
	if err != nil {
		return nil, err
	}
	var once sync.Once
	return func(r *http.Request) (string, error) {
		who, err := find(r)
		switch {
		case who != principal.Anonymous:
		case route.PrincipalRequired:
			return "", errAnonymous
		default:
			if overlooked := overlooked(r, source); overlooked != "" {
				once.Do(func() {
					s.log.Warn("a request with a key has no principal, but has "+overlooked+". If that identifies the client, set principal: all requests without one share their keys and ANSWERS (logged once)",
						"route", pattern, "principal", source)
				})
			}
		}
		return who, err
	}, nil
}

var errAnonymous = errors.New("the request has no principal (principal-required is set)")

// overlooked returns the name of a header that could identify the sender of an anonymous request. If the principal is a
// cookie, the operator knows about other cookies.
func overlooked(r *http.Request, source string) string {
	switch {
	case len(r.Header["Authorization"]) > 0:
		return "Authorization"
	case len(r.Header["Cookie"]) > 0 && !strings.HasPrefix(source, "cookie:"):
		return "Cookie"
	}
	return ""
}
