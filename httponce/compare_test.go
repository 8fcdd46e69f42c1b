package httponce

import (
	"encoding/hex"
	"errors"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/driver"
)

// sumOf hashes a request.
func sumOf(t testing.TB, f Compare, r *http.Request) everonce.Fingerprint {
	t.Helper()
	c, err := f.compile("Idempotency-Key")
	if err != nil {
		t.Fatal(err)
	}
	b := &body{}
	if err := b.readBody(httptest.NewRecorder(), r, 1<<30, time.Minute); err != nil {
		t.Fatal(err)
	}
	defer b.release()
	sum, err := c.of(r, b)
	if err != nil {
		t.Fatal(err)
	}
	return sum
}

func request(method, target, body string, headers ...string) *http.Request {
	r := httptest.NewRequest(method, target, strings.NewReader(body))
	for i := 0; i < len(headers); i += 2 {
		r.Header[headers[i]] = append(r.Header[headers[i]], headers[i+1])
	}
	return r
}

// Every part counts, and none can be taken for another.
func TestFingerprintsDiffer(t *testing.T) {
	f := Compare{Headers: []string{"x-tenant", "X-Currency"}}
	seen := map[everonce.Fingerprint]string{}
	for name, r := range map[string]*http.Request{
		"base":                   request("POST", "http://a.com/p", "body"),
		"method":                 request("PATCH", "http://a.com/p", "body"),
		"host":                   request("POST", "http://b.com/p", "body"),
		"port":                   request("POST", "http://a.com:80/p", "body"),
		"path":                   request("POST", "http://a.com/q", "body"),
		"case of the path":       request("POST", "http://a.com/P", "body"),
		"slash":                  request("POST", "http://a.com/p/", "body"),
		"escaped slash":          request("POST", "http://a.com/p%2F", "body"),
		"two slashes":            request("POST", "http://a.com//p", "body"),
		"two slashes within":     request("POST", "http://a.com/p//q", "body"),
		"one slash within":       request("POST", "http://a.com/p/q", "body"),
		"escaped slash within":   request("POST", "http://a.com/p%2Fq", "body"),
		"reserved":               request("POST", "http://a.com/p;q", "body"),
		"reserved, escaped":      request("POST", "http://a.com/p%3Bq", "body"),
		"query":                  request("POST", "http://a.com/p?x=1", "body"),
		"order of the query":     request("POST", "http://a.com/p?x=1&y=2", "body"),
		"order of the query, 2":  request("POST", "http://a.com/p?y=2&x=1", "body"),
		"body":                   request("POST", "http://a.com/p", "bodY"),
		"no body":                request("POST", "http://a.com/p", ""),
		"body as query":          request("POST", "http://a.com/p?body", ""),
		"a header, empty":        request("POST", "http://a.com/p", "body", "X-Tenant", ""),
		"a header":               request("POST", "http://a.com/p", "body", "X-Tenant", "a"),
		"two values":             request("POST", "http://a.com/p", "body", "X-Tenant", "a", "X-Tenant", "b"),
		"two values in one line": request("POST", "http://a.com/p", "body", "X-Tenant", "a, b"),
		"two values, turned":     request("POST", "http://a.com/p", "body", "X-Tenant", "b", "X-Tenant", "a"),
		"two empty values":       request("POST", "http://a.com/p", "body", "X-Tenant", "", "X-Tenant", ""),
		"the other header":       request("POST", "http://a.com/p", "body", "X-Currency", "a"),
		"both":                   request("POST", "http://a.com/p", "body", "X-Tenant", "a", "X-Currency", "a"),
		"a NUL in a header":      request("POST", "http://a.com/p", "body", "X-Tenant", "a\x00b"),
		"a large body":           request("POST", "http://a.com/p", strings.Repeat("b", 2*smallBody)),
		"another":                request("POST", "http://a.com/p", strings.Repeat("b", 2*smallBody-1)+"c"),
	} {
		sum := sumOf(t, f, r)
		if other, ok := seen[sum]; ok {
			t.Errorf("%s and %s have one sum", name, other)
		}
		seen[sum] = name
	}
}

// These differences are ignored: other headers, the case of the host, spellings of the path, and the framing of the
// body.
func TestFingerprintsAgree(t *testing.T) {
	base := sumOf(t, Compare{}, request("POST", "http://a.com/p/q?x=1", "body"))
	chunked := request("POST", "http://a.com/p/q?x=1", "body")
	chunked.ContentLength, chunked.TransferEncoding = -1, []string{"chunked"}
	for name, r := range map[string]*http.Request{
		"a header":      request("POST", "http://a.com/p/q?x=1", "body", "X-Tenant", "a", "Authorization", "b"),
		"host":          request("POST", "http://A.COM/p/q?x=1", "body"),
		"escapes":       request("POST", "http://a.com/%70/q?x=1", "body"),
		"dots":          request("POST", "http://a.com/o/../p/./q?x=1", "body"),
		"chunks":        chunked,
		"a spelled key": request("POST", "http://a.com/p/q?x=1", "body", "Idempotency-Key", `"k"`),
	} {
		if sumOf(t, Compare{}, r) != base {
			t.Errorf("%s counts", name)
		}
	}
	without := Compare{IgnoreHost: true}
	if sumOf(t, without, request("POST", "http://a.com/p", "")) != sumOf(t, without, request("POST", "http://b.com:8080/p", "")) {
		t.Error("the host is compared with IgnoreHost")
	}
	// A prefix that was cut off on the way here is a part of the path.
	cut := request("POST", "http://a.com/v1/p", "")
	cut.URL.Path = "/p"
	if sumOf(t, Compare{}, cut) == sumOf(t, Compare{}, request("POST", "http://a.com/p", "")) {
		t.Error("a part cut off the path is ignored")
	}
	// So is what was taken out of the query, or rewritten in it.
	account := func(n string) everonce.Fingerprint {
		r := request("POST", "http://a.com/p?account="+n+"&x=1", "")
		r.URL.RawQuery = "x=1"
		return sumOf(t, Compare{}, r)
	}
	if account("7") == account("8") {
		t.Error("a field removed from the query is ignored")
	}
	if account("7") == sumOf(t, Compare{}, request("POST", "http://a.com/p?x=1", "")) {
		t.Error("the removal of a query field is ignored")
	}
	added := request("POST", "http://a.com/p", "")
	added.URL.RawQuery = "x=1"
	if sumOf(t, Compare{}, added) == sumOf(t, Compare{}, request("POST", "http://a.com/p", "")) {
		t.Error("a field added to the query is ignored")
	}
}

// An Alg names the configuration, in the length that a record holds: sums of two configurations are not compared. The
// order and the spelling of its lists do not matter.
func TestAlgNamesTheConfiguration(t *testing.T) {
	seen := map[string]Compare{}
	for _, f := range []Compare{
		{},
		{IgnoreHost: true},
		{Headers: []string{"A"}},
		{Headers: []string{"B"}},
		{Headers: []string{"A", "B"}},
		{Headers: []string{"Ab"}},
		{IgnoreHost: true, Headers: []string{"A"}},
		{JSON: true},
		{JSON: true, IgnoreHost: true},
		{JSONOnly: []string{"/a"}},
		{JSONExcept: []string{"/a"}},
		{JSONOnly: []string{"/a", "/b"}},
		{JSONOnly: []string{"/a/b"}},
		{Headers: []string{"Json"}},
	} {
		c, err := f.compile("Idempotency-Key")
		if err != nil {
			t.Fatal(err)
		}
		if other, ok := seen[c.alg]; ok {
			t.Errorf("%+v and %+v are both %q", f, other, c.alg)
		}
		if len(c.alg) > driver.MaxFingerprintAlgLen || !strings.HasPrefix(c.alg, "http/2") {
			t.Errorf("%q", c.alg)
		}
		seen[c.alg] = f
	}
	for _, pair := range [][2]Compare{
		{{Headers: []string{"A", "b"}}, {Headers: []string{"B", "a", "A"}}},
		{{JSONOnly: []string{"/a", "/b"}}, {JSON: true, JSONOnly: []string{"/b", "/a", "/b"}}},
	} {
		one, err := pair[0].compile("Idempotency-Key")
		if err != nil {
			t.Fatal(err)
		}
		if two, err := pair[1].compile("Idempotency-Key"); err != nil || one.alg != two.alg {
			t.Errorf("%+v: %q, %q, %v", pair, one.alg, two.alg, err)
		}
	}
}

// Sums are kept for as long as a key is: what is hashed may change only with the name of it.
func TestFingerprintsAreStable(t *testing.T) {
	for name, c := range map[string]struct {
		f    Compare
		r    *http.Request
		want string
	}{
		"default": {Compare{}, request("POST", "http://example.com/payments/1?x=1", `{"amount":1}`), "http/2 f9c4d9091bba43f5"},
		"headers": {Compare{Headers: []string{"X-Tenant"}}, request("POST", "http://example.com/payments/1?x=1", `{"amount":1}`, "X-Tenant", "a"), "http/2+398fc82a74a7f798 b3b87114e76c5796"},
		"json":    {Compare{JSON: true}, request("POST", "http://example.com/payments", `{"b":[1.0,"\u00e9"],"a":9007199254740993}`, "Content-Type", "application/json"), "http/2+b715918bb3545e73 5e41b02777df10da"},
		"only":    {Compare{JSONOnly: []string{"/a"}}, request("POST", "http://example.com/payments", `{"b":2,"a":1}`, "Content-Type", "application/json"), "http/2+35c256a92ee8bd0b 9b28b41ac4df6b8f"},
		"except":  {Compare{JSONExcept: []string{"/b"}}, request("POST", "http://example.com/payments", `{"b":2,"a":1}`, "Content-Type", "application/json"), "http/2+9ab4574f94723685 1c9929e66fb4f215"},
	} {
		sum := sumOf(t, c.f, c.r)
		if got := sum.Alg + " " + hex.EncodeToString(sum.Sum[:8]); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

func TestBadFingerprints(t *testing.T) {
	many := make([]string, 257)
	for i := range many {
		many[i] = "/" + strings.Repeat("a", i+1)
	}
	for text, f := range map[string]Compare{
		`Headers: "" is not the name`:    {Headers: []string{""}},
		`Headers: "a b" is not the name`: {Headers: []string{"a b"}},
		`is the key`:                     {Headers: []string{"idempotency-key"}},
		`host never reaches`:             {Headers: []string{"host"}},
		`the limit is 64`:                {Headers: strings.Split(strings.Repeat("a,", 65)[:129], ",")},
		`exclude each other`:             {JSONOnly: []string{"/a"}, JSONExcept: []string{"/b"}},
		`JSONOnly: "a" is no JSON`:       {JSONOnly: []string{"a"}},
		`JSONOnly: "" is no JSON`:        {JSONOnly: []string{""}},
		`JSONExcept: "/a~2" is no JSON`:  {JSONExcept: []string{"/a~2"}},
		`JSONExcept: "/\xff" is no JSON`: {JSONExcept: []string{"/\xff"}},
		`JSONOnly is empty and not nil`:  {JSONOnly: []string{}},
		`JSONExcept has 257 pointers`:    {JSONExcept: many},
	} {
		if text == `the limit is 64` {
			for i := range f.Headers {
				f.Headers[i] = "A" + strings.Repeat("b", i)
			}
		}
		_, err := f.compile("Idempotency-Key")
		if !errors.Is(err, everonce.ErrInvalidArgument) || !strings.Contains(err.Error(), "Compare") || !strings.Contains(err.Error(), text) {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// A deploy that changes what is compared refuses no retry of a request that was sent before it.
func TestChangedConfigurationIsNoMismatch(t *testing.T) {
	old := sumOf(t, Compare{}, request("POST", "/p", "body"))
	for _, f := range []Compare{{IgnoreHost: true}, {Headers: []string{"A"}}, {JSON: true}} {
		if sum := sumOf(t, f, request("POST", "/p", "body")); driver.Fingerprint(sum).Conflicts(driver.Fingerprint(old)) || sum.Alg == old.Alg {
			t.Errorf("%+v: %v", f, sum)
		}
	}
}

// A form is its bytes, and the boundary is among them: a client that builds it anew sends another request.
func TestAFormThatIsBuiltAgain(t *testing.T) {
	form := func(boundary string) everonce.Fingerprint {
		var b strings.Builder
		w := multipart.NewWriter(&b)
		if boundary != "" {
			if err := w.SetBoundary(boundary); err != nil {
				t.Fatal(err)
			}
		}
		f, err := w.CreateFormFile("receipt", "receipt.pdf")
		if err == nil {
			_, err = f.Write([]byte("%PDF"))
		}
		if err = errors.Join(err, w.Close()); err != nil {
			t.Fatal(err)
		}
		return sumOf(t, Compare{}, request("POST", "/p", b.String(), "Content-Type", w.FormDataContentType()))
	}
	if first, again := form("order-7"), form("order-7"); again != first {
		t.Errorf("with the same boundary: %v, %v", first, again)
	}
	if first, again := form(""), form(""); !driver.Fingerprint(again).Conflicts(driver.Fingerprint(first)) {
		t.Errorf("with different boundaries: %v, %v", first, again)
	}
}
