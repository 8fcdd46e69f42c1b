package httponce

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/everonce/everonce"
)

// Every list of names has a scope, valid for the core, and no two have the same.
func TestScopesAreValidAndDiffer(t *testing.T) {
	long := strings.Repeat("x", 600)
	names := []string{
		"a", "a/", "/a", "a/b", "a%2Fb", "a%252Fb", "%", "%%", "a%", "~", "~" + strings.Repeat("0", 64), "ü", "u\u0308",
		"a\x00b", "a\nb", "a\x7f", "a\u0085b", "\xff", "\xfe", "\ufffd", long, long + "x", strings.Repeat("/", 80), strings.Repeat("/", 81), strings.Repeat("%", 200),
		scopePart(long, maxPrincipalPart), scopePart("\xff", maxPrincipalPart),
	}
	seen := map[everonce.Scope][3]string{}
	for _, principal := range names {
		for _, method := range []string{"POST", "PATCH", strings.Repeat("M", maxMethodPart)} {
			for _, route := range names {
				s := scopeOf(principal, method, route)
				id := [3]string{principal, method, route}
				if other, ok := seen[s]; ok {
					t.Fatalf("%q and %q have one scope: %s", id, other, s)
				}
				seen[s] = id
				if err := s.Validate(); err != nil {
					t.Fatalf("%q: %v", id, err)
				}
			}
		}
	}
}

// A short part is stored unchanged, so that an operator finds it. A long one is its hash, and a name that equals a hash
// does not reach another scope.
func TestScopeParts(t *testing.T) {
	for name, kept := range map[string]bool{
		"tenant-1": true, "tenant/1": true, "Zoë": true, strings.Repeat("x", 160): true, strings.Repeat("x", 161): false,
		strings.Repeat("/", 53): true, strings.Repeat("/", 54): false, "a\tb": false, "\xff": false, "\ufffd": true,
		"~" + strings.Repeat("0", 64): false, "~" + strings.Repeat("0", 63): true,
	} {
		got := scopePart(name, maxPrincipalPart)
		if (got == name) != kept || !kept && (len(got) != 65 || got[0] != hashMark || !utf8.ValidString(got)) {
			t.Errorf("%q: %q, kept must be %v", name, got, kept)
		}
	}
	for n, kept := range map[int]bool{326: true, 327: false} {
		route := strings.Repeat("x", n)
		if got := scopeOf("alice", "POST", route).Parts()[2]; (got == route) != kept {
			t.Errorf("a route of %d bytes: %q, kept must be %v", n, got, kept)
		}
	}
}

// The pieces of an answer are in the scope of its key or, if that has no room for another part, in its principal's:
// listing or deleting a tenant includes them.
func TestScopeOfPieces(t *testing.T) {
	for route, want := range map[string]string{"/a": "p/POST/%2Fa/answer", "/" + strings.Repeat("a", maxRoutePart-3): strings.Repeat("p", maxPrincipalPart) + "/answer"} {
		principal, method := "p", "POST"
		if len(route) > 2 {
			principal, method = strings.Repeat("p", maxPrincipalPart), strings.Repeat("M", maxMethodPart)
		}
		key := (&pieces{}).key(everonce.Key{Scope: scopeOf(principal, method, route), ID: "k"}, 7)
		if err := key.Scope.Validate(); err != nil || string(key.Scope) != want || key.ID != strings.Repeat("0", 32)+".7" {
			t.Errorf("%+v, %v, want the scope %s", key, err, want)
		}
	}
}
