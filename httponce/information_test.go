package httponce_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/textproto"
	"net/url"
	"strconv"
	"testing"
	"time"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/httponce"
	"github.com/everonce/everonce/httponce/proxy"
)

// A client that resets its stream while it is sent statuses below 200 does not let net/http read a header that is being
// changed: the race detector would tell (golang/go#67940).
func TestEarlyHintsDoNotShareTheHeader(t *testing.T) {
	hints := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for n := 0; r.Context().Err() == nil; n++ {
			w.Header().Set("Link", "</"+strconv.Itoa(n)+".css>")
			w.WriteHeader(http.StatusEarlyHints)
		}
	})
	upstream := httptest.NewServer(hints)
	t.Cleanup(upstream.Close)
	u, err := url.Parse(upstream.URL)
	if err != nil {
		t.Fatal(err)
	}
	proxy, err := proxy.New(u, nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		handler http.Handler
		route   httponce.Route
		key     string
	}{
		"handler":                 {hints, httponce.Route{EndWithClient: true}, "k"},
		"handler, in a goroutine": {hints, httponce.Route{EndWithClient: true, AnswerWithin: time.Minute}, "k"},
		"proxy":                   {proxy, httponce.Route{EndWithClient: true}, "k"},
		"proxy, without a key":    {proxy, httponce.Route{}, ""},
	} {
		protect, err := httponce.Middleware(newReceiver(t, everonce.Reexecute), httponce.Unscoped(), &httponce.Options{Route: tc.route})
		if err != nil {
			t.Fatal(err)
		}
		srv := httptest.NewUnstartedServer(protect(tc.handler))
		srv.EnableHTTP2 = true
		srv.StartTLS()
		for n := range 50 {
			ctx, reset := context.WithCancel(t.Context())
			ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{Got1xxResponse: func(int, textproto.MIMEHeader) error {
				reset()
				return nil
			}})
			r, err := http.NewRequestWithContext(ctx, http.MethodPost, srv.URL, http.NoBody)
			if err != nil {
				t.Fatal(err)
			}
			if tc.key != "" {
				r.Header.Set("Idempotency-Key", tc.key+strconv.Itoa(n))
			}
			if res, err := srv.Client().Do(r); err == nil {
				_ = res.Body.Close()
				t.Errorf("%s: it was answered %s, and not reset", name, res.Status)
			}
			reset()
		}
		srv.Close()
	}
}
