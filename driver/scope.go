package driver

import (
	"encoding/binary"
	"fmt"
	"strings"
)

// Limits of a key, in bytes.
const (
	// MaxIDLen is the longest ID.
	MaxIDLen = 512
	// MaxScopeLen is the longest Scope, in its encoded form.
	MaxScopeLen = 512
)

// Scope is a list of parts in one string, such as a tenant and a route. Build it with [ScopeOf]; a constant without
// "/" and "%" is a scope of one part. A key whose scope has an empty part is not valid: otherwise all callers without a
// tenant would share one scope and get each other's results.
//
// Scopes are stored in plain text, so that an operator can list and delete the records of a tenant. Put no secrets into
// them: hash a credential first if it serves as the principal.
type Scope string

// ScopeOf joins parts with "/", and escapes "/" and "%" inside a part. Different lists of parts give different scopes.
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

// Within reports whether s is outer or inside it, that is, whether the first parts of s are the parts of outer.
func (s Scope) Within(outer Scope) bool {
	rest, ok := strings.CutPrefix(string(s), string(outer))
	return ok && (rest == "" || rest[0] == '/')
}

// Validate returns an error that wraps [ErrInvalidKey] if no key can have the scope.
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
// tenant by this prefix, and then compares the scopes.
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
