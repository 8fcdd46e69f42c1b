package driver

import (
	"encoding/binary"
	"fmt"
	"strings"
)

// Limits of a [Key], in bytes.
const (
	// MaxIDLen is the longest ID.
	MaxIDLen = 512
	// MaxScopeLen is the longest Scope, in its encoded form.
	MaxScopeLen = 512
)

// Scope is a list of parts in one string, such as a tenant and a route. Build it with [ScopeOf]; a constant without
// "/" and "%" is a scope of one part as it is. An empty part is refused when a key is used: otherwise all whose
// tenant was never set would share one scope, and each other's results.
//
// Scopes are stored in clear, so that an operator can list and delete what belongs to one tenant: put no secret into
// them. A credential that serves as the principal must be hashed first.
type Scope string

// ScopeOf joins parts so that no two lists of parts give the same scope: a "/" separates them, and "/" and "%" inside
// a part are escaped.
func ScopeOf(parts ...string) Scope {
	if len(parts) == 1 && !strings.ContainsAny(parts[0], "/%") {
		return Scope(parts[0])
	}
	var stack [128]byte
	b := stack[:0]
	for i, p := range parts {
		if i > 0 {
			b = append(b, '/')
		}
		b = appendScopePart(b, p)
	}
	return Scope(b)
}

func appendScopePart(b []byte, part string) []byte {
	for i := range len(part) {
		switch c := part[i]; c {
		case '%':
			b = append(b, "%25"...)
		case '/':
			b = append(b, "%2F"...)
		default:
			b = append(b, c)
		}
	}
	return b
}

var scopeUnescaper = strings.NewReplacer("%2F", "/", "%25", "%")

// Parts returns the list that the scope was built from.
func (s Scope) Parts() []string {
	parts := strings.Split(string(s), "/")
	for i, p := range parts {
		parts[i] = scopeUnescaper.Replace(p)
	}
	return parts
}

// Within reports whether s is outer or lies inside it, that is, whether its first parts are the parts of outer.
func (s Scope) Within(outer Scope) bool {
	rest, ok := strings.CutPrefix(string(s), string(outer))
	return ok && (rest == "" || rest[0] == '/')
}

// Validate reports why no key can have the scope, as [Key.Validate] does.
func (s Scope) Validate() error {
	if err := CheckName(ErrInvalidKey, "scope", string(s), MaxScopeLen); err != nil {
		return err
	}
	if s[0] == '/' || s[len(s)-1] == '/' || strings.Contains(string(s), "//") {
		return fmt.Errorf("%w: the scope has an empty part", ErrInvalidKey)
	}
	return nil
}

// root returns the first part, still encoded.
func (s Scope) root() string {
	root, _, _ := strings.Cut(string(s), "/")
	return root
}

// ScopeRange returns the first 8 bytes of every [RecordID] whose scope has the same first part as s. A store lists a
// tenant by this range of IDs, and then compares the scope itself.
func ScopeRange(s Scope) [8]byte {
	h := uint64(14695981039346656037) // FNV-1a; only the place in the order depends on it
	root := s.root()
	for i := range len(root) {
		h = (h ^ uint64(root[i])) * 1099511628211
	}
	var b [8]byte
	binary.BigEndian.PutUint64(b[:], h)
	return b
}
