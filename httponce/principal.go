package httponce

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"net/http"
)

// Principal tells who sends a request: a tenant, an account, a user. A saved answer is replayed to nobody else. The
// name must be proven by the time the middleware runs: put authentication around it. An error, or an empty name,
// refuses the request with 403, and the handler is not called. The error's text is logged, at level Info because any
// client can cause it, and is not sent; it must hold no credential. A panic goes on. The function must not read the
// body, and may be called concurrently.
//
// The name is stored in clear, as a part of the scope, unless it is long or not printable: then its hash is stored. A
// credential that serves as the principal must be hashed first: see [Hashed].
type Principal func(*http.Request) (string, error)

// Unscoped returns a Principal that is the same for everybody, for an API whose callers are one party. Whoever knows
// another caller's key gets its answer.
func Unscoped() Principal {
	return func(*http.Request) (string, error) { return "everybody", nil }
}

// hashedDomain keeps the hashes of principals apart from all others of the same texts.
const hashedDomain = "everonce/httponce/principal\x00"

// Hashed returns a Principal whose names are hashes of those of p. It is for a credential, such as an API key or a
// token, that serves as the principal and must not be stored in clear. The new name is a SHA-256 of a fixed prefix
// and the name, as 64 hexadecimal digits. That hides what nobody can guess, such as a random token, but not a user's
// name or a PIN. Errors and empty names stay as they are. A changed credential is another principal: its keys start
// anew.
func Hashed(p Principal) Principal {
	if p == nil {
		return nil // and refused where it is used
	}
	return func(r *http.Request) (string, error) {
		name, err := p(r)
		if err != nil || name == "" {
			return "", err
		}
		sum := sha256.Sum256([]byte(hashedDomain + name))
		return hex.EncodeToString(sum[:]), nil
	}
}

var errNoPrincipal = errors.New("httponce: the principal is empty")

func (p Principal) name(r *http.Request) (string, error) {
	name, err := p(r)
	if err == nil && name == "" {
		err = errNoPrincipal
	}
	return name, err
}
