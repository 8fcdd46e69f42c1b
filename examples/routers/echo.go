package routers

import (
	"net/http"

	"github.com/labstack/echo/v5"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/httponce"
)

// Echo wraps the middleware by its own means. The pattern is echo's: a middleware for each route names it.
func Echo(receiver *everonce.Receiver, pay http.HandlerFunc) (http.Handler, error) {
	const pattern = "/orders/:order/payments"
	protect, err := httponce.Middleware(receiver, account, &httponce.Options{Route: httponce.Route{
		Name: func(*http.Request) string { return pattern },
	}})
	if err != nil {
		return nil, err
	}
	e := echo.New()
	e.POST(pattern, func(c *echo.Context) error {
		pay(c.Response(), c.Request())
		return nil
	}, echo.WrapMiddleware(protect))
	return e, nil
}
