package routers

import (
	"net/http"

	"github.com/gin-gonic/gin"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/httponce"
)

// Gin stands behind the middleware as a whole: gin's own middlewares expect a writer of gin's. The routes to
// protect are named as http.ServeMux writes them.
func Gin(receiver *everonce.Receiver, pay http.HandlerFunc) (http.Handler, error) {
	protect, err := httponce.Middleware(receiver, account, &httponce.Options{
		Routes: map[string]httponce.Route{"POST /orders/{order}/payments": {Required: true}},
	})
	if err != nil {
		return nil, err
	}
	engine := gin.New()
	engine.POST("/orders/:order/payments", gin.WrapF(pay))
	return protect(engine), nil
}
