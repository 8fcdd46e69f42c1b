// Package principal finds out whose request it is, for a proxy that verifies nothing itself.
package principal

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"unicode"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/golang-jwt/jwt/v5"

	"github.com/everonce/everonce/httponce"
)

// ErrSource: a text names no source of principals.
var ErrSource = errors.New("must be header:NAME, jwt:CLAIM, cookie:NAME or " + None)

// neverThere are the headers that tell a service nothing: net/http moves the first three out of a request's header, and
// the others are for the next hop alone.
var neverThere = map[string]bool{
	"Host": true, "Transfer-Encoding": true, "Trailer": true,
	"Connection": true, "Http2-Settings": true, "Keep-Alive": true, "Proxy-Authenticate": true, "Proxy-Authorization": true, "Proxy-Connection": true, "Te": true, "Upgrade": true,
}

// None is the source by which everybody is one.
const None = "none"

// Forwarded reports whether a source is a header that says for whom a hop in front asks. Unless the proxy believes what
// is in front, it writes these anew, and what arrives in them is what any client likes.
func Forwarded(source string) bool {
	kind, name, _ := strings.Cut(source, ":")
	switch http.CanonicalHeaderKey(name) {
	case "Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto":
		return kind == "header"
	}
	return false
}

// Anonymous is the one principal of all requests without the header, cookie or claim. No other principal equals it.
const Anonymous = "anonymous"

// New returns the principal that source names:
//
//	header:NAME  the value of a request header; without it the request is anonymous
//	cookie:NAME  the value of a cookie; without it the request is anonymous
//	jwt:CLAIM    a claim of the bearer token in Authorization. The token is NOT verified here: any client that can
//	             reach the proxy may claim any name in a token, unless something in front verifies tokens.
//	             A request without a token, or without the claim, has no principal and is rejected
//	none         all requests have one principal
//
// The value of a header or a cookie is a credential and is hashed, with the secret if there is one, so that a reader of
// the store cannot guess it. A claim is a name and is not hashed.
//
// Where one is required, who sends an empty header or cookie, as logging out leaves it, is anonymous like who sends
// none.
func New(source string, secret []byte, required bool) (httponce.Principal, error) {
	kind, name, _ := strings.Cut(source, ":")
	h := hasher{kind: kind, name: name, secret: secret, required: required}
	switch {
	case source == None:
		return httponce.Unscoped(), nil
	case name == "" || strings.ContainsAny(name, " \t\r\n,;:\"()<>@[]{}\\/?="):
		return nil, ErrSource
	case kind == "header":
		if h.name = http.CanonicalHeaderKey(name); neverThere[h.name] {
			return nil, fmt.Errorf("%w; %s tells no sender: it is not passed on as a header", ErrSource, h.name)
		}
		return passedOn(h.name, h.header), nil
	case kind == "cookie":
		return passedOn("Cookie", h.cookie), nil
	case kind == "jwt":
		return passedOn("Authorization", claim(name)), nil
	}
	return nil, ErrSource
}

var errKeptHere = errors.New("the header that says who sends the request is named in Connection, so that the service would not get it")

// passedOn rejects a request whose header would not be passed on. A client may name any header in Connection, even one
// that a proxy in front has set, and the service would then see no sender for an operation that is recorded as
// somebody's.
func passedOn(header string, p httponce.Principal) httponce.Principal {
	return func(r *http.Request) (string, error) {
		for _, options := range r.Header["Connection"] {
			for option := range strings.SplitSeq(options, ",") {
				if strings.EqualFold(strings.Trim(option, " \t"), header) {
					return "", errKeptHere
				}
			}
		}
		return p(r)
	}
}

// hasher makes names of credentials.
type hasher struct {
	kind, name string
	secret     []byte
	required   bool
}

// hash returns a name that tells nothing of the values, and is another one for each kind and name.
func (h *hasher) hash(values ...string) string {
	mac := hmac.New(sha256.New, h.secret)
	for _, s := range append([]string{"everonce proxy principal", h.kind, h.name}, values...) {
		var length [8]byte
		binary.BigEndian.PutUint64(length[:], uint64(len(s)))
		mac.Write(length[:])
		mac.Write([]byte(s))
	}
	return h.kind + ":" + hex.EncodeToString(mac.Sum(nil)[:16])
}

func (h *hasher) header(r *http.Request) (string, error) {
	values := r.Header[h.name]
	if len(values) == 0 || h.required && strings.Join(values, "") == "" {
		return Anonymous, nil
	}
	return h.hash(values...), nil
}

var (
	errCookies = errors.New("the cookie has two values")
	errPieces  = errors.New("the cookie is too long for one and comes in pieces, of which none tells its sender")
)

// A value that is too long for one cookie is sent in pieces: most frameworks use sid.0, sid_0, sid-0 or sid__0, without
// sid or with an empty one; ASP.NET uses sidC1; h3 uses sid.1, with a sid that gives their number. The rest of sid is
// then the same for all users.
var (
	piece  = regexp.MustCompile(`^[._-]+[0-9]+$`)
	pieces = regexp.MustCompile(`^(__chunked__|chunks(-|:|%3[Aa]))[0-9]+$`)
)

// cookie reads the header itself: net/http skips a cookie whose value is not a token, such as JSON, and all cookies if
// there are too many. A client whose cookie the service can read would be anonymous here, together with all others.
func (h *hasher) cookie(r *http.Request) (string, error) {
	var sent string
	var found, cut bool
	for _, line := range r.Header["Cookie"] {
		for pair := range strings.SplitSeq(line, ";") {
			name, value, _ := strings.Cut(pair, "=")
			name, value = strings.Trim(name, " \t"), strings.Trim(value, " \t")
			rest, ours := strings.CutPrefix(name, h.name)
			switch {
			case !ours:
			case rest != "":
				cut = cut || piece.MatchString(rest)
			case found && sent != value:
				return "", errCookies
			case pieces.MatchString(value):
				return "", errPieces
			default:
				sent, found = value, true
			}
		}
	}
	switch {
	case cut && sent == "":
		return "", errPieces
	case !found || h.required && strings.Trim(sent, `"`) == "":
		return Anonymous, nil
	}
	return h.hash(sent), nil
}

// The reasons to reject a token. None of them repeats it.
var (
	errToken  = errors.New("no bearer token that can be read")
	errTokens = errors.New("more than one Authorization")
)

// maxClaim is the longest claim, in bytes; a scope has to hold it.
const maxClaim = 200

func claim(name string) httponce.Principal {
	parser := jwt.NewParser()
	return func(r *http.Request) (string, error) {
		values := r.Header["Authorization"]
		if len(values) > 1 {
			return "", errTokens
		}
		if len(values) == 0 {
			return "", errToken
		}
		scheme, token, _ := strings.Cut(values[0], " ")
		if !strings.EqualFold(scheme, "Bearer") {
			return "", errToken
		}
		claims := jwt.MapClaims{}
		_, parts, err := parser.ParseUnverified(strings.TrimSpace(token), claims)
		if err != nil {
			return "", errToken // the library's text may quote it
		}
		// The library takes the last of two claims of one name, and one character for all that is no UTF-8: two readers, two
		// names.
		if plain, err := parser.DecodeSegment(parts[1]); err != nil || !jsontext.Value(plain).IsValid() {
			return "", errToken
		}
		who, ok := claims[name].(string)
		if !ok || who == "" || len(who) > maxClaim || strings.ContainsFunc(who, unicode.IsControl) {
			return "", fmt.Errorf("the token has no claim %s that is a text of up to %d bytes", name, maxClaim)
		}
		return "jwt:" + name + ":" + who, nil
	}
}
