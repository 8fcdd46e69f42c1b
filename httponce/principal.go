package httponce

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"net/http"
)

// Principal returns the sender of a request: a tenant, an account, a user. A saved answer is replayed to no other
// principal. The name must be authenticated: put authentication around the middleware. An error or an empty name
// refuses the request with 403. The error's text is logged at level Info, because any client can cause it, and not
// sent; it must not contain a credential. A panic continues. The function must not read the body, and may be called
// concurrently.
//
// The name is stored in clear, as a part of the scope, or as a hash if it is long or not printable. If a credential
// serves as the principal, hash it: see [Hashed].
type Principal func(*http.Request) (string, error)

// Unscoped returns a Principal that is the same for all requests, for an API whose callers are one party. Any caller
// that knows a key gets its answer.
func Unscoped() Principal {
	return func(*http.Request) (string, error) { return "everybody", nil }
}

// hashedDomain keeps the hashes of principals apart from all others of the same texts.
const hashedDomain = "everonce/httponce/principal\x00"

// Hashed returns a Principal that hashes the names of p, for a credential, such as an API key or a token, that serves
// as the principal and must not be stored in clear. The name is the SHA-256 of a fixed prefix and p's name, as 64
// hexadecimal digits. That hides a random token, but not a name or a PIN that can be guessed. Errors and empty names
// pass unchanged. A changed credential is another principal, with other keys.
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
