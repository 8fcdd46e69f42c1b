package proxy

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/everonce/everonce/cmd/everonce/internal/proxy/config"
	"github.com/everonce/everonce/cmd/everonce/internal/proxy/principal"
)

// The default principal, in front of a service whose sessions are in cookies, makes all senders one. The proxy warns
// about that, once.
func TestAnonymousWithACredentialIsWarnedOf(t *testing.T) {
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
		if lines, raw := p.logged(t, "all requests without one share their keys"); len(lines) != tc.told {
			t.Errorf("%s: the log has %v, want %d", label, raw, tc.told)
		}
	}
}

// A route that requires a principal rejects a request without one, which would otherwise get the answers of all other
// such requests. The principal's own source decides, and nothing else; a request without a key is not checked.
func TestPrincipalRequired(t *testing.T) {
	service := &counting{}
	for source, headers := range map[string][2][]string{
		"header:Authorization": {{"Authorization", "Bearer hidden"}, {"Authorization", ""}},
		"header:X-Tenant":      {{"X-Tenant", "a"}, {"X-Tenant", "", "X-Tenant", ""}},
		"cookie:sid":           {{"Cookie", "sid=hidden"}, {"Cookie", "sid="}},
	} {
		headers, empty := headers[0], headers[1]
		p := start(t, service.ServeHTTP, "--principal-required", "--principal="+source)
		for label, c := range map[string]struct {
			headers []string
			want    int
		}{
			"who says so":           {append(headers, "Idempotency-Key", "a"), http.StatusCreated},
			"no sender":             {[]string{"Idempotency-Key", "a"}, http.StatusForbidden},
			"who says nothing":      {append(empty, "Idempotency-Key", "a"), http.StatusForbidden},
			"who quotes nothing":    {[]string{"Cookie", `sid=""`, "Idempotency-Key", "a"}, http.StatusForbidden},
			"who says other":        {[]string{"X-Other", "a", "Cookie", "x=1", "Idempotency-Key", "a"}, http.StatusForbidden},
			"no sender, and no key": {nil, http.StatusCreated},
			"who had been before":   {append(headers, "Idempotency-Key", "a"), http.StatusCreated},
		} {
			if res, body := send(t, "POST", p.url+"/", "", c.headers...); res.StatusCode != c.want || c.want == http.StatusForbidden && !strings.Contains(body, "no-principal") {
				t.Errorf("%s, %s: %d %s, want %d", source, label, res.StatusCode, body, c.want)
			}
		}
		if lines, raw := p.logged(t, "all requests without one share their keys"); len(lines) > 0 {
			t.Errorf("%s: of who is refused the log says %v", source, raw)
		}
	}
	if n := service.count(); n != 6 { // of each source one with its key, and one without
		t.Errorf("the service was called %d times, want 6", n)
	}
	c := configOf(t, "--listen=127.0.0.1:0", "--store=memory:", "--upstream=http://127.0.0.1:1", "--principal-required")
	everybody := c.Route
	everybody.Principal = principal.None
	c.Routes = map[string]config.Route{"/webhooks/": everybody}
	if _, err := New(t.Context(), c, discard); !errors.Is(err, config.ErrInvalid) || !strings.Contains(err.Error(), `routes "/webhooks/": principal-required`) {
		t.Errorf("where everybody is one: %v", err)
	}
	everybody.PrincipalRequired = false
	c.Routes = map[string]config.Route{"/webhooks/": everybody}
	if err := Check(c, discard); err != nil {
		t.Error(err)
	}
}

// A header that a proxy in front writes identifies the sender only if the proxy trusts what is in front.
func TestPrincipalsThatAnyClientWrites(t *testing.T) {
	for _, source := range []string{"header:Forwarded", "header:x-forwarded-for", "header:X-Forwarded-Host", "header:X-Forwarded-Proto"} {
		args := []string{"--listen=127.0.0.1:0", "--store=memory:", "--upstream=http://127.0.0.1:1", "--principal=" + source}
		if err := Check(configOf(t, args...), discard); !errors.Is(err, config.ErrInvalid) || !strings.Contains(err.Error(), "principal "+source+" needs trust-forwarded") {
			t.Errorf("%s: %v", source, err)
		}
		if err := Check(configOf(t, append(args, "--trust-forwarded")...), discard); err != nil {
			t.Errorf("%s, believed: %v", source, err)
		}
	}
	others := []string{"header:X-Forwarded-User", "cookie:Forwarded", "jwt:Forwarded", principal.None}
	for _, source := range others { // which the proxy passes on as they came
		if err := Check(configOf(t, "--listen=127.0.0.1:0", "--store=memory:", "--upstream=http://127.0.0.1:1", "--principal="+source), discard); err != nil {
			t.Errorf("%s: %v", source, err)
		}
	}
}
