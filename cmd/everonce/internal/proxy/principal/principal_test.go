package principal

import (
	"encoding/base64"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// token returns an unsigned token, as good as any here.
func token(claims string) string {
	enc := base64.RawURLEncoding.EncodeToString
	return enc([]byte(`{"alg":"HS256"}`)) + "." + enc([]byte(claims)) + "." + enc([]byte("no signature"))
}

// name returns the principal of a request with headers: name, value, name, value.
func name(t *testing.T, source string, secret []byte, headers ...string) (string, error) {
	t.Helper()
	p, err := New(source, secret, false)
	if err != nil {
		t.Fatalf("%s: %v", source, err)
	}
	r := httptest.NewRequest(http.MethodPost, "/", nil)
	for i := 0; i < len(headers); i += 2 {
		r.Header.Add(headers[i], headers[i+1])
	}
	return p(r)
}

// Two are one principal if and only if they sent the same of what is looked at.
func TestPrincipals(t *testing.T) {
	alice := []string{"Authorization", "Bearer alice-secret"}
	for label, tc := range map[string]struct {
		source string
		a, b   []string
		same   bool
	}{
		"one header":           {"header:authorization", alice, alice, true},
		"two headers":          {"header:Authorization", alice, []string{"Authorization", "Bearer bob-secret"}, false},
		"letter case":          {"header:Authorization", alice, []string{"Authorization", "bearer alice-secret"}, false},
		"none and somebody":    {"header:Authorization", nil, alice, false},
		"none and empty":       {"header:Authorization", nil, []string{"Authorization", ""}, false},
		"none, twice":          {"header:Authorization", nil, nil, true},
		"anonymous as a value": {"header:X-Tenant", nil, []string{"X-Tenant", "anonymous"}, false},
		"values are not one":   {"header:X-Tenant", []string{"X-Tenant", "a", "X-Tenant", "b"}, []string{"X-Tenant", "ab"}, false},
		"one value more":       {"header:X-Tenant", []string{"X-Tenant", "a", "X-Tenant", "b"}, []string{"X-Tenant", "a"}, false},
		"values cut elsewhere": {"header:X-Tenant", []string{"X-Tenant", "ab", "X-Tenant", "c"}, []string{"X-Tenant", "a", "X-Tenant", "bc"}, false},
		"one cookie":           {"cookie:sid", []string{"Cookie", "x=1; sid=abc"}, []string{"Cookie", "sid=abc"}, true},
		"two cookies":          {"cookie:sid", []string{"Cookie", "sid=abc"}, []string{"Cookie", "sid=abd"}, false},
		"cookies of JSON":      {"cookie:sid", []string{"Cookie", `sid={"u":"alice"}`}, []string{"Cookie", `sid={"u":"bob"}`}, false},
		"odd cookies":          {"cookie:sid", []string{"Cookie", "x=\"; sid=\xe9\\a"}, []string{"Cookie", "x=\"; sid=\xe9\\b"}, false},
		"an odd cookie again":  {"cookie:sid", []string{"Cookie", "sid =\xe9\\a ;x"}, []string{"Cookie", "x=1", "Cookie", "y;sid=\xe9\\a"}, true},
		"none, odd cookie":     {"cookie:sid", nil, []string{"Cookie", `sid={"u":"alice"}`}, false},
		"none, empty cookie":   {"cookie:sid", nil, []string{"Cookie", "sid="}, false},
		"none, many cookies":   {"cookie:sid", nil, []string{"Cookie", strings.Repeat("x=;", 4000) + "sid=abc"}, false},
		"cookie of that end":   {"cookie:sid", nil, []string{"Cookie", "xsid=abc; sid2=abc; Sid=abc"}, true},
		"pieces of another":    {"cookie:sid", []string{"Cookie", "sid_1=x; sid=abc; session.0=y"}, []string{"Cookie", "sid=abc"}, true},
		"a cookie twice":       {"cookie:sid", []string{"Cookie", "sid=abc; sid=abc"}, []string{"Cookie", "sid=abc"}, true},
		"a renewed token":      {"jwt:sub", []string{"Authorization", "Bearer " + token(`{"sub":"alice","iat":1}`)}, []string{"Authorization", "bearer " + token(`{"sub":"alice","iat":2}`)}, true},
		"tokens of two":        {"jwt:sub", []string{"Authorization", "Bearer " + token(`{"sub":"alice"}`)}, []string{"Authorization", "Bearer " + token(`{"sub":"bob"}`)}, false},
		"an expired token":     {"jwt:sub", []string{"Authorization", "Bearer " + token(`{"sub":"alice","exp":1}`)}, []string{"Authorization", "Bearer " + token(`{"sub":"alice"}`)}, true},
		"none":                 {"none", alice, nil, true},
	} {
		a, err := name(t, tc.source, nil, tc.a...)
		if err != nil {
			t.Errorf("%s: %v", label, err)
		}
		b, err := name(t, tc.source, nil, tc.b...)
		if err != nil || (a == b) != tc.same {
			t.Errorf("%s: %q and %q, %v; want them equal: %v", label, a, b, err, tc.same)
		}
		for _, credential := range []string{"secret", "abc"} {
			if strings.Contains(a, credential) {
				t.Errorf("%s: %q tells a credential", label, a)
			}
		}
	}
}

// A token that names no subject is rejected, and the error does not repeat the token.
func TestNoPrincipal(t *testing.T) {
	for label, tc := range map[string]struct {
		source  string
		headers []string
	}{
		"no token":         {"jwt:sub", nil},
		"no bearer":        {"jwt:sub", []string{"Authorization", "Basic aGlkZGVuOmhpZGRlbg=="}},
		"a malformed one":  {"jwt:sub", []string{"Authorization", "Bearer hidden.hidden.hidden"}},
		"two parts":        {"jwt:sub", []string{"Authorization", "Bearer hidden.hidden"}},
		"no claim":         {"jwt:sub", []string{"Authorization", "Bearer " + token(`{"name":"hidden"}`)}},
		"an empty claim":   {"jwt:sub", []string{"Authorization", "Bearer " + token(`{"sub":""}`)}},
		"a claim of 7":     {"jwt:sub", []string{"Authorization", "Bearer " + token(`{"sub":7}`)}},
		"a long claim":     {"jwt:sub", []string{"Authorization", "Bearer " + token(`{"sub":"`+strings.Repeat("h", 201)+`"}`)}},
		"a claim with LF":  {"jwt:sub", []string{"Authorization", "Bearer " + token(`{"sub":"hidden\nx"}`)}},
		"two tokens":       {"jwt:sub", []string{"Authorization", "Bearer " + token(`{"sub":"a"}`), "Authorization", "Bearer " + token(`{"sub":"b"}`)}},
		"a cookie twice":   {"cookie:sid", []string{"Cookie", "sid=hidden; sid=other"}},
		"pieces":           {"cookie:sid", []string{"Cookie", "x=1; sid.0=hidden; sid.1=b"}},
		"pieces, by a bar": {"cookie:sid", []string{"Cookie", "sid_0=hidden"}},
		"pieces, by two":   {"cookie:sid", []string{"Cookie", "sid__0=hidden"}},
		"pieces, emptied":  {"cookie:sid", []string{"Cookie", "sid=; sid.0=hidden"}},
		"pieces, counted":  {"cookie:sid", []string{"Cookie", "sid=chunks-2; sidC1=hidden; sidC2=b"}},
		"by the old one":   {"cookie:sid", []string{"Cookie", "sid=chunks:2; sidC1=hidden"}},
		"that is escaped":  {"cookie:sid", []string{"Cookie", "sid=chunks%3A2; sidC1=hidden"}},
		"by h3":            {"cookie:sid", []string{"Cookie", "sid=__chunked__2; sid.1=hidden"}},
		"one odd, one not": {"cookie:sid", []string{"Cookie", `sid="hidden; sid=other`}},
		"two claims":       {"jwt:sub", []string{"Authorization", "Bearer " + token(`{"sub":"alice","sub":"hidden"}`)}},
		"no UTF-8":         {"jwt:sub", []string{"Authorization", "Bearer " + token("{\"sub\":\"hidden\xff\"}")}},
		"half a character": {"jwt:sub", []string{"Authorization", "Bearer " + token(`{"sub":"hidden\ud800"}`)}},
		"header kept here": {"header:X-Tenant", []string{"X-Tenant", "hidden", "Connection", "close, x-tenant"}},
		"cookie kept here": {"cookie:sid", []string{"Cookie", "sid=hidden", "Connection", "Cookie"}},
		"token kept here":  {"jwt:sub", []string{"Authorization", "Bearer " + token(`{"sub":"hidden"}`), "Connection", "close", "Connection", "Authorization"}},
	} {
		if who, err := name(t, tc.source, nil, tc.headers...); err == nil || who != "" || strings.Contains(err.Error(), "hidden") {
			t.Errorf("%s: %q, %v", label, who, err)
		}
	}
}

// A client that repeats a request after an upgrade of the proxy must have the same principal, or the request runs
// again. Each name is the first 16 bytes of an HMAC-SHA-256 over texts, each behind its length in 8 bytes: "everonce
// proxy principal", the kind, the name and the values.
func TestPrincipalsAreTheSameInEveryVersion(t *testing.T) {
	secret := []byte("0123456789abcdef")
	for _, c := range []struct {
		source  string
		secret  []byte
		headers []string
		want    string
	}{
		{"header:authorization", nil, []string{"Authorization", "Bearer alice-secret"}, "header:bd79901c9c2489081bc2ce873254de58"},
		{"header:Authorization", secret, []string{"Authorization", "Bearer alice-secret"}, "header:d823e0d9ae5921883fd42d0d7e820a8c"},
		{"header:X-Tenant", nil, []string{"X-Tenant", "a", "X-Tenant", "b"}, "header:d7e4a42ff41b283063d7190f103015e6"},
		{"cookie:sid", nil, []string{"Cookie", "sid=abc"}, "cookie:96b8fd1e54295fce3e81a6e28891ae1a"},
		{"jwt:sub", secret, []string{"Authorization", "Bearer " + token(`{"sub":"alice"}`)}, "jwt:sub:alice"},
		{"header:X-Tenant", nil, nil, "anonymous"},
		{"none", nil, nil, "everybody"},
	} {
		if who, err := name(t, c.source, c.secret, c.headers...); who != c.want || err != nil {
			t.Errorf("%s %q: %q, %v, and was %q", c.source, c.headers, who, err, c.want)
		}
	}
}

// With a secret, who knows a credential does not know its name in the store.
func TestPrincipalSecret(t *testing.T) {
	headers := []string{"Authorization", "Basic YTpi"}
	a, _ := name(t, "header:Authorization", nil, headers...)
	b, _ := name(t, "header:Authorization", []byte("sixteen bytes is"), headers...)
	c, _ := name(t, "header:Authorization", []byte("sixteen bytes it"), headers...)
	if a == b || b == c {
		t.Errorf("%q, %q, %q", a, b, c)
	}
}

func TestSources(t *testing.T) {
	for _, source := range []string{"", "header", "header:", "header:no header", "jwt:", "cookie:", "cookie:a=b", "query:token", "none:x", "Authorization", "header:Host", "header:host", "header:transfer-encoding", "header:Trailer", "header:proxy-authorization", "header:Upgrade", "header:TE"} {
		if _, err := New(source, nil, false); err == nil {
			t.Errorf("%q is taken", source)
		}
	}
}

// The same value from another source is another principal, and a request without a value is anonymous.
func TestPrincipalsOfOtherSources(t *testing.T) {
	bearer := "Bearer " + token(`{"sub":"alice","name":"alice"}`)
	seen := map[string]string{}
	for _, source := range []string{"header:X-A", "header:X-B", "cookie:X-A", "cookie:X-B", "jwt:sub", "jwt:name"} {
		who, err := name(t, source, nil, "X-A", "alice", "X-B", "alice", "Cookie", "X-A=alice; X-B=alice", "Authorization", bearer)
		if err != nil {
			t.Fatal(err)
		}
		if other, ok := seen[who]; ok {
			t.Errorf("%s and %s make one principal: %s", source, other, who)
		}
		seen[who] = source
		if strings.HasPrefix(source, "jwt:") {
			continue
		}
		if who, err = name(t, source, nil); who != "anonymous" || err != nil {
			t.Errorf("%s: without it a request has principal %q, %v", source, who, err)
		}
	}
}
