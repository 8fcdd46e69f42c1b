package proxy_test

import (
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/everonce/everonce/httponce"
)

// Trailers reach the first client and every repetition, be they announced or not, and however short the body is that
// they follow: net/http alone counts a short one, and then has no place for them.
func TestProxyTrailers(t *testing.T) {
	const head, body = "HTTP/1.1 201 Created\r\nTransfer-Encoding: chunked\r\n", "\r\n4\r\npaid\r\n0\r\n"
	one := map[string]string{"X-Sum": "7"}
	for name, tc := range map[string]struct {
		text string
		want map[string]string
	}{
		"announced":            {head + "Trailer: X-Sum\r\n" + body + "X-Sum: 7\r\n\r\n", one},
		"not announced":        {head + body + "X-Sum: 7\r\n\r\n", one},
		"one of two announced": {head + "Trailer: X-Sum\r\n" + body + "X-Sum: 7\r\nX-More: 8\r\n\r\n", map[string]string{"X-Sum": "7", "X-More": "8"}},
		"behind no body":       {head + "\r\n0\r\nX-Sum: 7\r\n\r\n", one},
		"none":                 {head + body + "\r\n", nil},
		"that is forbidden":    {head + body + "X-Sum: 7\r\n" + wrongTrailers + "\r\n", one},
		"behind an announced":  {head + "Trailer: X-Sum\r\n" + body + "X-Sum: 7\r\n" + wrongTrailers + "\r\n", one},
		"nothing but wrong":    {head + body + wrongTrailers + "\r\n", nil},
		"one that is announced, and one that is forbidden": {head + "Trailer: X-Sum, Content-Encoding\r\n" + body + "X-Sum: 7\r\nContent-Encoding: br\r\n\r\n", one},
	} {
		for how, route := range map[string]httponce.Route{"held": {}, "held, in a goroutine": {AnswerWithin: time.Minute}, "passed on": {MaxAnswer: 2}} {
			u := newWireUpstream(t, func(int, wireRequest) (string, bool) { return tc.text, false })
			srv := newProxy(t, u.url, &httponce.Options{Route: route}, nil)
			for _, marker := range []string{"", "true"} {
				if marker == "true" && how == "passed on" {
					continue // a body that was not kept has no trailers
				}
				header, got := trailersOf(t, srv.Client(), srv.URL, "k")
				if header.Get("Idempotent-Replayed") != marker || !maps.Equal(got, tc.want) {
					t.Errorf("%s, %s, marked %q: trailers %v, want %v", name, how, marker, got, tc.want)
				}
			}
			if _, got := trailersOf(t, srv.Client(), srv.URL, ""); !maps.Equal(got, tc.want) {
				t.Errorf("%s, %s, without a key: trailers %v, want %v", name, how, got, tc.want)
			}
			if n := len(u.seen()); n != 2 {
				t.Errorf("%s, %s: the upstream got %d requests", name, how, n)
			}
		}
	}
}

// wrongTrailers are fields that no message may have behind its body (RFC 9110, 6.5.1).
const wrongTrailers = "Content-Length: 5\r\nTransfer-Encoding: chunked\r\nTrailer: X\r\ncontent-type: text/html\r\nIf-Match: x\r\n"

// trailersOf sends a request, with a key if there is one, and returns the trailers of its answer.
func trailersOf(t *testing.T, c *http.Client, url, key string) (header http.Header, trailers map[string]string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	if key != "" {
		r.Header.Set("Idempotency-Key", key)
	}
	res, err := c.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	bodyOf(t, res)
	for name := range res.Trailer {
		if trailers == nil {
			trailers = map[string]string{}
		}
		trailers[name] = res.Trailer.Get(name)
	}
	return res.Header, trailers
}

// Trailers of a request reach the service, small as the body that is held may be.
func TestProxyTrailersOfARequest(t *testing.T) {
	for _, key := range []string{"", "k"} {
		for _, size := range []int{0, 4, 200 << 10} {
			var got string
			u := newUpstream(t, func(_ http.ResponseWriter, r *http.Request) {
				n, err := io.Copy(io.Discard, r.Body)
				got = fmt.Sprint(n, " ", err, " ", r.Trailer.Get("X-Sum"))
			})
			srv := newProxy(t, u, nil, nil)
			r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, srv.URL, struct{ io.Reader }{strings.NewReader(strings.Repeat("x", size))})
			if err != nil {
				t.Fatal(err)
			}
			r.Trailer = http.Header{"X-Sum": {"7"}}
			if key != "" {
				r.Header.Set("Idempotency-Key", key)
			}
			res, err := srv.Client().Do(r)
			if err != nil {
				t.Fatal(err)
			}
			res.Body.Close()
			if want := fmt.Sprint(size, " <nil> 7"); got != want {
				t.Errorf("key %q: the service got %s, want %s", key, got, want)
			}
		}
	}
}

// A trailer that was not announced is passed on with a key alone, whose middleware has read it; and none that would
// frame the request, that carries credentials or the key, or that each hop writes anew: a service may take it for its
// header, at which others have looked.
func TestProxyPassesOnNoTrailerThatFrames(t *testing.T) {
	for key, want := range map[string]string{"": "[X-Sum]", "Idempotency-Key: k\r\n": "[X-Sum X-User]"} {
		for _, body := range []string{"", "2\r\nhi\r\n"} {
			got := "nothing"
			u := newUpstream(t, func(_ http.ResponseWriter, r *http.Request) {
				if _, err := io.Copy(io.Discard, r.Body); err != nil {
					t.Error(err)
				}
				got = fmt.Sprint(slices.Sorted(maps.Keys(r.Trailer)))
			})
			srv := newProxy(t, u, nil, nil)
			c, err := net.Dial("tcp", strings.TrimPrefix(srv.URL, "http://"))
			if err != nil {
				t.Fatal(err)
			}
			fmt.Fprintf(c, "POST / HTTP/1.1\r\nHost: a\r\n%sConnection: close\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum, Authorization, Cookie, Idempotency-Key\r\n\r\n%s0\r\n"+
				"X-Sum: 7\r\nX-User: somebody\r\nAuthorization: another\r\nCookie: c=1\r\nIdempotency-Key: other\r\nForwarded: for=x\r\nX-Forwarded-For: x\r\nUpgrade: h2c\r\n"+wrongTrailers+"\r\n", key, body)
			answer, err := io.ReadAll(c)
			c.Close()
			if err != nil || !strings.HasPrefix(string(answer), "HTTP/1.1 200 ") || got != want {
				t.Errorf("%q, body %q: %q, %v, and the service got %s", key, body, answer, err, got)
			}
		}
	}
}
