package routers

import (
	"net/http"

	"github.com/go-chi/chi/v5"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/httponce"
)

// Chi takes the middleware unchanged. With puts it behind the routing, where the pattern is known, which then names the
// route.
func Chi(receiver *everonce.Receiver, pay http.HandlerFunc) (http.Handler, error) {
	protect, err := httponce.Middleware(receiver, account, &httponce.Options{Route: httponce.Route{
		Name: func(r *http.Request) string { return chi.RouteContext(r.Context()).RoutePattern() },
	}})
	if err != nil {
		return nil, err
	}
	router := chi.NewRouter()
	router.With(protect).Post("/orders/{order}/payments", pay)
	return router, nil
}

// account tells whose request it is: here by a header that the authentication in front has set.
func account(r *http.Request) (string, error) { return r.Header.Get("X-Account"), nil }
