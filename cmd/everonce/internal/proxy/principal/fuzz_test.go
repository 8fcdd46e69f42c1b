package principal

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/everonce/everonce"
)

// asked asks for the principal of a request with one header of several lines.
func asked(t *testing.T, source, header, lines string) (string, error) {
	t.Helper()
	p, err := New(source, []byte("sixteen bytes is"), false)
	if err != nil {
		t.Fatal(err)
	}
	r := &http.Request{Header: http.Header{}}
	for line := range strings.SplitSeq(lines, "\n") {
		r.Header.Add(header, line)
	}
	who, err := p(r)
	switch known := []error{errCookies, errPieces, errToken, errTokens}; {
	case err != nil && (who != "" || !slices.Contains(known, err) && err.Error() != "the token has no claim sub that is a text of up to 200 bytes"):
		t.Errorf("%q: %q, %v: an error that may quote what was sent", lines, who, err)
	case err == nil:
		if invalid := everonce.ScopeOf(who).Validate(); invalid != nil {
			t.Errorf("%q is %q, which is no part of a scope: %v", lines, who, invalid)
		}
	}
	return who, err
}

// FuzzHeaderPrincipal: two requests have one principal if and only if they have the same values of the header, in the
// same order.
func FuzzHeaderPrincipal(f *testing.F) {
	f.Add("a", "a")
	f.Add("anonymous", "")
	f.Add("a\nb", "ab")
	f.Add("ab\nc", "a\nbc")
	f.Add("a\n", "a")
	f.Fuzz(func(t *testing.T, a, b string) {
		first, err1 := asked(t, "header:X-Tenant", "X-Tenant", a)
		second, err2 := asked(t, "header:X-Tenant", "X-Tenant", b)
		if err1 != nil || err2 != nil || (first == second) != (a == b) || first == Anonymous {
			t.Errorf("%q is %q, %v; %q is %q, %v", a, first, err1, b, second, err2)
		}
	})
}

// sid finds the cookie in a line, with whatever a service may take for its value.
var sid = regexp.MustCompile(`(?:^|;)[ \t]*sid[ \t]*(?:=([^;]*))?(?:;|$)`)

// cookiesOf returns the values of the cookie, as sent.
func cookiesOf(lines string) (values []string) {
	for line := range strings.SplitSeq(lines, "\n") {
		for pair := range strings.SplitSeq(line, ";") {
			if m := sid.FindStringSubmatch(pair); m != nil {
				values = append(values, strings.Trim(m[1], " \t"))
			}
		}
	}
	return values
}

// FuzzCookiePrincipal: requests with two different cookies have two principals, and a request with both is rejected. A
// request that has the cookie according to net/http, which services read it with, is never anonymous, and nothing but
// the value identifies it.
func FuzzCookiePrincipal(f *testing.F) {
	f.Add("sid=a", "sid=b")
	f.Add("x=1; sid=a", "sid=a")
	f.Add("sid=a; sid=b", "sid=a\nsid=a")
	f.Add(`sid="a"`, `sid=a`)
	f.Add("sid.0=a; sid.1=b", "sid=; sid_0=a")
	f.Add("sid=chunks-2; sidC1=a", "sid=__chunked__2")
	f.Add("sid", "sid=")
	f.Add("Sid=a; sid2=b; xsid=c", "")
	f.Add("sid=a=b", "\tsid\t=\ta=b\t;")
	f.Fuzz(func(t *testing.T, a, b string) {
		if strings.ContainsFunc(strings.NewReplacer("\n", "", "\t", "").Replace(a+b), unicode.IsControl) {
			return // no server takes such a header
		}
		var names [2]string
		var values [2][]string
		for i, lines := range []string{a, b} {
			who, err := asked(t, "cookie:sid", "Cookie", lines)
			names[i], values[i] = who, slices.Compact(cookiesOf(lines))
			if several := len(values[i]) > 1; several && err == nil || errors.Is(err, errCookies) && !several {
				t.Errorf("%q has the values %q: %q, %v", lines, values[i], who, err)
			}
			if (who == Anonymous) != (err == nil && len(values[i]) == 0) {
				t.Errorf("%q has the values %q: %q, %v", lines, values[i], who, err)
			}
			cookies, parseErr := http.ParseCookie(strings.ReplaceAll(lines, "\n", "; "))
			if parseErr != nil || err != nil {
				continue
			}
			for _, c := range cookies {
				value := c.Value
				if c.Quoted {
					value = `"` + value + `"`
				}
				if alone, err := asked(t, "cookie:sid", "Cookie", "sid="+value); c.Name == "sid" && (err != nil || alone != who) {
					t.Errorf("%q: %q; and of its cookie alone, %q: %q, %v", lines, who, value, alone, err)
				}
			}
		}
		if names[0] != "" && names[1] != "" && (names[0] == names[1]) != slices.Equal(values[0], values[1]) {
			t.Errorf("%q is %q, %q is %q", a, names[0], b, names[1])
		}
	})
}

// FuzzClaimPrincipal: the principal of a token is its claim, which the token has once, and as that text for every
// reader of JSON.
func FuzzClaimPrincipal(f *testing.F) {
	for _, claims := range []string{
		`{"sub":"alice"}`, `{"sub":"alice","sub":"bob"}`, `{"sub":"alice","s\u0075b":"bob"}`, `{"SUB":"alice"}`, `{"sub":["alice"]}`, `{"sub":null}`,
		`{"a":{"sub":"bob"},"sub":"alice"}`, "{\"sub\":\"a\xff\"}", `{"sub":"\ud800"}`, `{"sub":"a"} {"sub":"b"}`, `["sub"]`, `{"sub":"a\u0000b"}`, ``, `null`,
	} {
		f.Add([]byte(claims), "")
		f.Add([]byte(claims), "bearer  ")
	}
	f.Add([]byte(`{"sub":"alice"}`), "Basic ")
	f.Add([]byte(`{"sub":"alice"}`), "Bearer x.y.z\nBearer ")
	f.Fuzz(func(t *testing.T, claims []byte, scheme string) {
		if scheme == "" {
			scheme = "Bearer "
		}
		who, err := asked(t, "jwt:sub", "Authorization", scheme+token(string(claims)))
		told := subOf(claims)
		if err != nil {
			if scheme == "Bearer " && len(told) == 1 && plain(told[0]) && json.Valid(claims) && utf8.Valid(claims) && !bytes.Contains(claims, []byte("\\")) && twice(claims) == "" {
				t.Errorf("%q: %v", claims, err)
			}
			return
		}
		if len(told) != 1 || who != "jwt:sub:"+told[0] || strings.Contains(scheme, "\n") || !strings.EqualFold(strings.TrimSpace(scheme), "bearer") {
			t.Errorf("%q %q is %q, and has the claims %q", scheme, claims, who, told)
		}
	})
}

// subOf returns the values of the object's claim, one for each occurrence.
func subOf(claims []byte) (all []string) {
	d := json.NewDecoder(bytes.NewReader(claims))
	if begin, err := d.Token(); err != nil || begin != json.Delim('{') {
		return nil
	}
	for d.More() {
		name, err := d.Token()
		if err != nil {
			return nil
		}
		var value any
		if d.Decode(&value) != nil {
			return nil
		}
		if name == "sub" {
			text, _ := value.(string)
			all = append(all, text)
		}
	}
	return all
}

// plain are the texts that are taken without a question.
func plain(s string) bool {
	return s != "" && len(s) <= maxClaim && !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r > '~' })
}

// twice returns a text that is quoted twice, and may be a name that an object has twice.
func twice(claims []byte) string {
	seen := map[string]bool{}
	for _, name := range regexp.MustCompile(`"[^"]*"`).FindAllString(string(claims), -1) {
		if seen[name] {
			return name
		}
		seen[name] = true
	}
	return ""
}
