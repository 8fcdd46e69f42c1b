package httponce

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
)

// The middle column is what tells resources apart (RFC 3986, 6.2.2), the last one what names a route.
func TestNormalAndCleanPath(t *testing.T) {
	for _, c := range []struct{ target, normal, clean string }{
		{"/", "/", "/"},
		{"//", "//", "/"},
		{"/a", "/a", "/a"},
		{"/a/", "/a/", "/a/"},
		{"/A", "/A", "/A"},
		{"//a", "//a", "/a"},
		{"/a//b", "/a//b", "/a/b"},
		{"/a/./b", "/a/b", "/a/b"},
		{"/a/../b", "/b", "/b"},
		{"/../b", "/b", "/b"},
		{"/a/b/..", "/a/", "/a"},
		{"/a/.", "/a/", "/a"},
		{"/a//../b", "/a/b", "/b"},
		{"//../a", "/a", "/a"},
		{"/..", "/", "/"},
		{"/a/%2e%2e/b", "/b", "/b"},
		{"/a/%2E/b", "/a/b", "/a/b"},
		{"/...", "/...", "/..."},
		{"/.well-known", "/.well-known", "/.well-known"},
		{"/%61%2D%7e", "/a-~", "/a-~"},
		{"/a%2fb", "/a%2Fb", "/a/b"},
		{"/a%2Fb", "/a%2Fb", "/a/b"},
		{"/a%252Fb", "/a%252Fb", "/a%252Fb"},
		{"/a%2F..%2Fb", "/a%2F..%2Fb", "/b"},
		{"/a;v=1", "/a;v=1", "/a;v=1"},
		{"/a%3bv%3D1", "/a%3Bv%3D1", "/a;v=1"},
		{"/a%20b", "/a%20b", "/a%20b"},
		{"/a+b", "/a+b", "/a+b"},
		{"/a%2Bb", "/a%2Bb", "/a+b"},
		{"/a!b", "/a!b", "/a%21b"},
		{"/a%21b", "/a%21b", "/a%21b"},
		{"/a[b", "/a[b", "/a%5Bb"},
		{"/a%5bb", "/a%5Bb", "/a%5Bb"},
		{"/%C3%A9", "/%C3%A9", "/%C3%A9"},
		{"/%c3%a9", "/%C3%A9", "/%C3%A9"},
		{"/\u00e9%2fb", "/%C3%A9%2Fb", "/%C3%A9/b"}, // net/url gives up the escape of the slash
		{"/e%CC%81", "/e%CC%81", "/e%CC%81"},        // the other normal form is another path
		{"/%00", "/%00", "/%00"},
		{"/%FF", "/%FF", "/%FF"},
		{"/a%3Fb", "/a%3Fb", "/a%3Fb"},
		{"*", "*", "/%2A"},
		{"http://a.com", "/", "/"},
		{"http://a.com/", "/", "/"},
		{"http://a.com//b", "//b", "/b"},
	} {
		u, err := url.ParseRequestURI(c.target)
		if err != nil {
			t.Fatal(err)
		}
		if got := normalPath(u); got != c.normal {
			t.Errorf("%s: the normal form %s, want %s", c.target, got, c.normal)
		}
		if got := cleanPath(u); got != c.clean {
			t.Errorf("%s: cleaned %s, want %s", c.target, got, c.clean)
		}
	}
	connect := &url.URL{Host: "example.com:443"}
	if normal, clean := normalPath(connect), cleanPath(connect); normal != "/" || clean != "/" {
		t.Errorf("no path: %s, %s", normal, clean)
	}
}

// FuzzPath: either form is made once and for all, the short way to it is the long way, equivalent paths are on one
// route, and what is not written equal is equal for a reason that RFC 3986 gives.
func FuzzPath(f *testing.F) {
	for _, s := range []string{"/", "/a/b/", "//a/./../b", "/%2e%2E/%2f", "/a%", "/\u00e4", "/\u00e4%2f", "/a;b=c?d", "/.a/b.c", "*", "//host/a", "/%zz", "/a/..", "/a/../", "/a\x00", "/[%5b"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, target string) {
		u, err := url.ParseRequestURI(target)
		if err != nil || u.Opaque != "" {
			return
		}
		for name, form := range map[string]func(*url.URL) string{"normal": normalPath, "clean": cleanPath} {
			got := form(u)
			again, err := url.ParseRequestURI(got)
			if err != nil {
				t.Fatalf("%q: %s: %q: %v", target, name, got, err)
			}
			if twice := form(again); twice != got {
				t.Errorf("%q: %s: %q, and again %q", target, name, got, twice)
			}
			if u.RawPath == "" && isPlain(u.Path) {
				long := *u
				long.Path = "/." + u.Path
				if l := form(&long); l != got {
					t.Errorf("%q: %s: %q, the long way %q", target, name, got, l)
				}
			}
		}
		normal, err := url.ParseRequestURI(normalPath(u))
		if err != nil {
			t.Fatal(err)
		}
		if clean := cleanPath(normal); strings.TrimSuffix(clean, "/") != strings.TrimSuffix(cleanPath(u), "/") && !strings.Contains(u.EscapedPath(), "//") && !strings.Contains(strings.ToUpper(u.EscapedPath()), "%2F") {
			t.Errorf("%q: on the route %q, in its normal form on %q", target, cleanPath(u), clean)
		}
		// A path that a mux cleans is the same route. (One with an escape it escapes again, on its way to the client.)
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

// A part that was cut off path or query on the way here is compared, and so is a part that was added to the path.
func TestTargetOf(t *testing.T) {
	for _, c := range []struct{ uri, path, want string }{
		{"", "/a", "/a"},
		{"/a", "/a", "/a"},
		{"/a?x=1", "/a?x=1", "/a"},
		{"/a?x=1", "/a?x=2", "/a?x=1"},
		{"/a?x=1", "/a", "/a?x=1"},
		{"/a%3Fx=1", "/a%3Fx=1", "/a%3Fx=1"},
		{"//a", "/a", "//a"},
		{"/%61", "/a", "/a"},
		{"/v1/a", "/a", "/v1/a"},
		{"http://example.com/v1/a?x", "/a?x", "/v1/a"},
		{"http://example.com", "/", "/"},
		{"example.com:443", "/", "example.com:443"},
		{"*", "*", "*"},
	} {
		path, query, _ := strings.Cut(c.path, "?")
		r := &http.Request{RequestURI: c.uri, URL: &url.URL{RawQuery: query}}
		if got := targetOf(r, path); got != c.want {
			t.Errorf("%q: %q, want %q", c.uri, got, c.want)
		}
	}
}

// Only a redirect of the same method to another spelling of the same URL has no effect.
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
		{"/a/b/..", "/a", 307, true},
		{"/a%2Fb", "/a/b", 308, true},
		{"//a", "/a", 302, false}, // the client changes the method: this is an answer
		{"//a", "/a", 303, false},
		{"//a", "/a", 200, false},
		{"//a", "", 307, false},
		{"/a", "/a", 307, false}, // a loop
		{"//a?x=1", "/a", 307, false},
		{"//a", "http://example.org/a", 307, false},
		{"/a", "/a/", 307, false}, // another route, where the key is another one
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
