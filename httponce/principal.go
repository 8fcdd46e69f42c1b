package httponce

import (
	"errors"
	"net/http"
)

// Principal tells who sends a request: a tenant, an account, a user. A saved answer is replayed to
// nobody else. It must be proven by the time the middleware runs: put authentication outside of it. An
// error, or an empty name, refuses the request with 403, and the handler is not called; the error's text is logged
// (Info: any client can cause it), so it must hold no credential, and is not sent. A panic goes on. The function must not read the body, and may be
// called concurrently.
//
// The name is stored in clear, as a part of the scope, unless it is long or not printable: then its hash is. A credential
// that serves as the principal must be hashed first.
type Principal func(*http.Request) (string, error)

// Unscoped returns a Principal that is the same for everybody: for an API whose callers are one party.
// Whoever knows a key of another caller's gets its answer.
func Unscoped() Principal {
	return func(*http.Request) (string, error) { return "everybody", nil }
}

var errNoPrincipal = errors.New("httponce: the principal is empty")

func (p Principal) name(r *http.Request) (string, error) {
	name, err := p(r)
	if err == nil && name == "" {
		err = errNoPrincipal
	}
	return name, err
}
