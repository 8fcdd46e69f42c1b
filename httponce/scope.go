package httponce

import (
	"crypto/sha256"
	"encoding/hex"
	"unicode"
	"unicode/utf8"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/driver"
)

// The longest parts of a scope, as a scope writes them: together they are no longer than driver.MaxScopeLen.
const (
	maxPrincipalPart = 160
	maxMethodPart    = 24
	maxRoutePart     = driver.MaxScopeLen - maxPrincipalPart - maxMethodPart - 2
)

// scopeOf returns the scope of a request's key: who sends it, how, and where to. The host is no part of it: one
// service under two names would do everything twice. It is in the fingerprint.
func scopeOf(principal, method, route string) everonce.Scope {
	return everonce.ScopeOf(scopePart(principal, maxPrincipalPart), method, scopePart(route, maxRoutePart))
}

// hashMark begins the hash that stands for a part.
const hashMark = '~'

// scopePart returns a name as a scope can hold it: the name, or its hash where it is too long, not printable, or
// could itself be taken for such a hash.
func scopePart(name string, limit int) string {
	if fits(name, limit) {
		return name
	}
	sum := sha256.Sum256([]byte(name))
	b := append(make([]byte, 0, 1+2*len(sum)), hashMark)
	return string(hex.AppendEncode(b, sum[:]))
}

func fits(name string, limit int) bool {
	if len(name) == 1+2*sha256.Size && name[0] == hashMark {
		return false
	}
	n := len(name)
	for i := 0; i < len(name); {
		switch c := name[i]; {
		case c == '/' || c == '%':
			n += 2 // escaped
			i++
		case c < ' ' || c == 0x7f:
			return false
		case c < utf8.RuneSelf:
			i++
		default:
			r, size := utf8.DecodeRuneInString(name[i:])
			if r == utf8.RuneError && size == 1 || unicode.IsControl(r) {
				return false
			}
			i += size
		}
	}
	return n <= limit
}
