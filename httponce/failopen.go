package httponce

import (
	"errors"
	"net/http"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/driver"
)

func (x *exchange) failOpen(next http.Handler, cause error) {
	x.served.FailedOpen = true
	x.log.ErrorContext(x.r.Context(), "httponce: the store is down, and the request goes on UNPROTECTED",
		"route", x.served.Route, "key", x.keyHash(), "error", cause)
	x.echo(x.w.Header())
	r := x.request(x.r.Context())
	defer x.tidy(r)
	next.ServeHTTP(x.w, r)
}

// storeIsDown reports whether the store could not be asked, so that a route may let the request through: not
// where the handler was called, nor where another attempt was seen to run, nor where what is
// wrong is not that the store is down.
func (v *verdict) storeIsDown() bool {
	if v.res.Outcome != everonce.StoreFailed || v.own != nil || v.concurrent {
		return false
	}
	for _, other := range [...]error{everonce.ErrUndecodable, driver.ErrCorruptRecord, driver.ErrNewerRecord, driver.ErrIdentity, everonce.ErrSchema} {
		if errors.Is(v.err, other) {
			return false
		}
	}
	return true
}
