package proxy_test

import (
	"net/http"
	"strings"
	"testing"
)

// To some services "post" is POST, and no middleware has protected it: it is not passed on, whatever comes with it.
func TestProxyPassesNoMethodInSmallLetters(t *testing.T) {
	calls := 0
	srv := newProxy(t, newUpstream(t, func(w http.ResponseWriter, _ *http.Request) {
		calls++
		w.WriteHeader(http.StatusCreated)
	}), nil, nil)
	for _, method := range []string{"post", "patch", "Post", "pOST"} {
		for _, key := range []string{"", "k"} {
			req, err := http.NewRequestWithContext(t.Context(), method, srv.URL+"/", strings.NewReader("{}"))
			if err != nil {
				t.Fatal(err)
			}
			if key != "" {
				req.Header.Set("Idempotency-Key", key)
			}
			res, err := srv.Client().Do(req)
			if err != nil {
				t.Fatal(err)
			}
			res.Body.Close()
			if res.StatusCode != http.StatusNotImplemented || calls != 0 {
				t.Errorf("%s, key %q: %d, %d calls", method, key, res.StatusCode, calls)
			}
		}
	}
	if got, _, body := post(t, srv, "/", "k", "{}"); got != http.StatusCreated || calls != 1 {
		t.Errorf("POST: %d %s, %d calls", got, body, calls)
	}
}
