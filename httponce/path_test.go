package httponce

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
)

func TestCleanPath(t *testing.T) {
	for target, want := range map[string]string{
		"/":             "/",
		"//":            "/",
		"/a":            "/a",
		"/a/":           "/a/",
		"/A":            "/A",
		"//a":           "/a",
		"/a//b":         "/a/b",
		"/a/./b":        "/a/b",
		"/a/../b":       "/b",
		"/../b":         "/b",
		"/a/%2e%2e/b":   "/b",
		"/a/%2E/b":      "/a/b",
		"/...":          "/...",
		"/.well-known":  "/.well-known",
		"/%61":          "/a",
		"/a%2fb":        "/a%2Fb",
		"/a%2Fb":        "/a%2Fb",
		"/a%252Fb":      "/a%252Fb",
		"/a;v=1":        "/a%3Bv=1",
		"/a%3bv%3D1":    "/a%3Bv=1",
		"/a%20b":        "/a%20b",
		"/a+b":          "/a+b",
		"/a:b@c$d&e":    "/a:b@c$d&e",
		"/%C3%A9":       "/%C3%A9",
		"/%c3%a9":       "/%C3%A9",
		"/e%CC%81":      "/e%CC%81", // the other normal form is another path
		"/%00":          "/%00",
		"/%FF":          "/%FF",
		"/a%3Fb":        "/a%3Fb",
		"*":             "/%2A",
		"http://a.com":  "/",
		"http://a.com/": "/",
	} {
		u, err := url.ParseRequestURI(target)
		if err != nil {
			t.Fatal(err)
		}
		if got := cleanPath(u); got != want {
			t.Errorf("%s: %s, want %s", target, got, want)
		}
	}
	if got := cleanPath(&url.URL{Host: "example.com:443"}); got != "/" { // CONNECT
		t.Errorf("no path: %s", got)
	}
}

// FuzzCleanPath: cleaning is done once and for all, what it makes is a path, and the short way to it is the long way.
func FuzzCleanPath(f *testing.F) {
	for _, s := range []string{"/", "/a/b/", "//a/./../b", "/%2e%2E/%2f", "/a%", "/ä", "/a;b=c?d", "/.a/b.c", "*", "//host/a", "/%zz", "/a/..", "/a\x00"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, target string) {
		u, err := url.ParseRequestURI(target)
		if err != nil {
			return
		}
		got := cleanPath(u)
		again, err := url.ParseRequestURI(got)
		if err != nil || got[0] != '/' {
			t.Fatalf("%q: %q: %v", target, got, err)
		}
		if twice := cleanPath(again); twice != got {
			t.Errorf("%q: %q, cleaned again %q", target, got, twice)
		}
		if u.RawPath == "" && isClean(u.Path) {
			long := *u
			long.RawPath = u.Path
			if l := cleanPath(&long); l != got {
				t.Errorf("%q: %q, the long way %q", target, got, l)
			}
		}
		// What a mux cleans is the same route. (One with an escape it escapes again, on its way to the client.)
		if target[0] == '/' && !strings.HasPrefix(target, "//") && !strings.ContainsAny(target, "#?") && !strings.Contains(u.EscapedPath(), "%") {
			mux := http.NewServeMux()
			mux.HandleFunc("/", func(http.ResponseWriter, *http.Request) {})
			w := httptest.NewRecorder()
			mux.ServeHTTP(w, &http.Request{Method: http.MethodPost, URL: u, RequestURI: target})
			if to := w.Header().Get("Location"); to != "" && !respelled(&http.Request{URL: u}, w.Code, to) {
				t.Errorf("%q: redirected to %q (%d), which is another route", target, to, w.Code)
			}
		}
	})
}

// What has been cut off path or query on their way here counts, and so does what was written into the path.
func TestTargetOf(t *testing.T) {
	for _, c := range []struct{ uri, path, want string }{
		{"", "/a", "/a"},
		{"/a", "/a", "/a"},
		{"/a?x=1", "/a?x=1", "/a"},
		{"/a?x=1", "/a?x=2", "/a?x=1"},
		{"/a?x=1", "/a", "/a?x=1"},
		{"/a%3Fx=1", "/a%3Fx=1", "/a%3Fx=1"},
		{"//a", "/a", "/a"},
		{"/v1/a", "/a", "/v1/a"},
		{"http://example.com/v1/a?x", "/a?x", "/v1/a"},
		{"http://example.com", "/", "/"},
		{"example.com:443", "/", "example.com:443"},
		{"*", "/%2A", "/%2A"},
	} {
		path, query, _ := strings.Cut(c.path, "?")
		r := &http.Request{RequestURI: c.uri, URL: &url.URL{RawQuery: query}}
		if got := targetOf(r, path); got != c.want {
			t.Errorf("%q: %q, want %q", c.uri, got, c.want)
		}
	}
}

// Only a redirect of the same method to another spelling of the same URL is none but that.
func TestRespelled(t *testing.T) {
	for _, c := range []struct {
		target, location string
		status           int
		want             bool
	}{
		{"//a", "/a", 307, true},
		{"//a", "/a", 308, true},
		{"//a?x=1", "/a?x=1", 307, true},
		{"/%61", "http://example.com/a", 307, true},
		{"/a/../b", "/b", 307, true},
		{"//a", "/a", 302, false}, // the client changes the method: this is an answer
		{"//a", "/a", 303, false},
		{"//a", "/a", 200, false},
		{"//a", "", 307, false},
		{"/a", "/a", 307, false}, // a loop
		{"//a?x=1", "/a", 307, false},
		{"//a", "http://example.org/a", 307, false},
		{"/a", "/a/", 307, false}, // another route, with a key of its own
		{"/a", "/b", 307, false},
		{"/a", "%zz", 307, false},
	} {
		r := httptest.NewRequest(http.MethodPost, "http://example.com"+c.target, http.NoBody)
		r.URL.Host, r.URL.Scheme = "", ""
		if got := respelled(r, c.status, c.location); got != c.want {
			t.Errorf("%s -> %d %s: %v", c.target, c.status, c.location, got)
		}
	}
}
