package proxy

import (
	"net/http"
	"testing"
)

// Who leaves principal as it is in front of a service with sessions in cookies makes one sender of all, and is told so, once.
func TestAnonymousWithACredentialIsTold(t *testing.T) {
	service := &counting{}
	for label, tc := range map[string]struct {
		principal string
		headers   []string
		told      int
	}{
		"a session in a cookie":    {"header:Authorization", []string{"Cookie", "sid=hidden"}, 1},
		"a token":                  {"cookie:sid", []string{"Authorization", "Bearer hidden", "Cookie", "x=1"}, 1},
		"a tenant that is missing": {"header:X-Tenant", []string{"Authorization", "Bearer hidden"}, 1},
		"nothing at all":           {"header:Authorization", nil, 0},
		"what is looked for":       {"header:Authorization", []string{"Authorization", "Bearer hidden", "Cookie", "sid=hidden"}, 0},
		"another cookie":           {"cookie:sid", []string{"Cookie", "x=1"}, 0},
		"one caller":               {"none", []string{"Cookie", "sid=hidden"}, 0},
	} {
		p := start(t, service.ServeHTTP, "--principal="+tc.principal)
		for _, key := range []string{"a", "b"} {
			if res, body := send(t, "POST", p.url+"/", "", append(tc.headers, "Idempotency-Key", key)...); res.StatusCode != http.StatusCreated {
				t.Fatalf("%s: %d %s", label, res.StatusCode, body)
			}
		}
		if lines, raw := p.logged(t, "all without a principal are ONE"); len(lines) != tc.told {
			t.Errorf("%s: the log has %v, want %d", label, raw, tc.told)
		}
	}
}
