package routers

import (
	"net/http"

	"github.com/labstack/echo/v5"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/httponce"
)

// Echo wraps the middleware by its own means, which tell it the pattern.
func Echo(receiver *everonce.Receiver, pay echo.HandlerFunc) (http.Handler, error) {
	protect, err := httponce.Middleware(receiver, account, nil)
	if err != nil {
		return nil, err
	}
	e := echo.New()
	e.POST("/orders/:order/payments", pay, echo.WrapMiddleware(protect), answerErrors)
	return e, nil
}

// answerErrors makes an answer of a handler's error. Echo would do that when the middleware has returned: until then
// the handler has said nothing, which in net/http is a 200, and would be saved.
func answerErrors(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c *echo.Context) error {
		if err := next(c); err != nil {
			c.Echo().HTTPErrorHandler(c, err)
		}
		return nil
	}
}
