package client_test

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/everonce/everonce/httponce/client"
)

// hops is a server that redirects /start to a location, and remembers all that comes: method, path, body, key.
type hops struct {
	*httptest.Server
	mu   sync.Mutex
	seen []string
}

func newHops(t *testing.T, status int, location string) *hops {
	t.Helper()
	h := &hops{}
	h.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		h.mu.Lock()
		defer h.mu.Unlock()
		h.seen = append(h.seen, strings.TrimSpace(strings.Join([]string{r.Method, r.URL.Path, string(body), r.Header.Get("Idempotency-Key")}, " ")))
		switch {
		case r.URL.Path == "/start":
			http.Redirect(w, r, location, status)
		case r.URL.Path == "/hop":
			http.Redirect(w, r, "/end", status)
		case r.Method == http.MethodPost && len(h.seen) < 4: // once more after a redirect
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	t.Cleanup(h.Close)
	return h
}

func (h *hops) requests() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.seen
}

// start posts to /start, with the key in the header, in the context or made by the transport.
func start(t *testing.T, sender *http.Client, url, from string) (*http.Response, error) {
	t.Helper()
	ctx := t.Context()
	if from == "context" {
		ctx = client.WithKey(ctx, "order-7")
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/start", strings.NewReader("charge"))
	if err != nil {
		t.Fatal(err)
	}
	switch from {
	case "header":
		req.Header.Set("Idempotency-Key", `"order-7"`)
	case "spelled":
		req.Header["idempotency-KEY"] = []string{`"order-7"`}
	}
	return sender.Do(req)
}

// An operation that is redirected unchanged keeps its body and its key, over all hops and attempts.
func TestTransportRedirectKeepsTheKey(t *testing.T) {
	for _, status := range []int{http.StatusTemporaryRedirect, http.StatusPermanentRedirect} {
		for _, from := range []string{"header", "context", "random"} {
			srv := newHops(t, status, "/hop")
			resp, err := start(t, over(t, nil, nil), srv.URL, from)
			wantAnswer(t, resp, err, http.StatusOK, "")
			key := `"order-7"`
			if from == "random" {
				key = resp.Request.Header.Get("Idempotency-Key")
			}
			want := []string{"POST /start charge " + key, "POST /hop charge " + key, "POST /end charge " + key, "POST /end charge " + key}
			if got := srv.requests(); !slices.Equal(got, want) || key == "" {
				t.Errorf("%d, key by %s: the server got %q, want %q", status, from, got, want)
			}
		}
	}
}

// A redirect that makes a GET of it makes a request without a key, though net/http copies a caller's header.
func TestTransportRedirectToAGetHasNoKey(t *testing.T) {
	for _, status := range []int{http.StatusMovedPermanently, http.StatusFound, http.StatusSeeOther} {
		for _, from := range []string{"header", "spelled", "context", "random"} {
			srv := newHops(t, status, "/hop")
			resp, err := start(t, over(t, nil, nil), srv.URL, from)
			wantAnswer(t, resp, err, http.StatusOK, "")
			if got := srv.requests(); len(got) != 3 || got[1] != "GET /hop" || got[2] != "GET /end" {
				t.Errorf("%d, key by %s: the server got %q", status, from, got)
			}
		}
	}
}

// A key does not go to another origin, whichever way it was given. net/http alone would send it there.
func TestTransportRedirectElsewhere(t *testing.T) {
	for _, from := range []string{"header", "context", "random"} {
		other := newHops(t, 0, "")
		srv := newHops(t, http.StatusTemporaryRedirect, other.URL+"/end")
		_, err := start(t, over(t, nil, nil), srv.URL, from)
		if !errors.Is(err, client.ErrRedirectedElsewhere) || strings.Contains(err.Error(), "order-7") {
			t.Errorf("key by %s: got the error %v", from, err)
		}
		if got := other.requests(); len(got) != 0 {
			t.Errorf("key by %s: the other server got %q", from, got)
		}
		toGet := newHops(t, http.StatusSeeOther, other.URL+"/end")
		resp, err := start(t, over(t, nil, nil), toGet.URL, from)
		wantAnswer(t, resp, err, http.StatusOK, "")
		if got := other.requests(); !slices.Equal(got, []string{"GET /end"}) {
			t.Errorf("key by %s: the other server got %q", from, got)
		}
	}
	other := newHops(t, 0, "")
	srv := newHops(t, http.StatusTemporaryRedirect, other.URL+"/end")
	resp, err := start(t, &http.Client{}, srv.URL, "header")
	wantAnswer(t, resp, err, http.StatusServiceUnavailable, "")
	if got := other.requests(); !slices.Equal(got, []string{`POST /end charge "order-7"`}) {
		t.Errorf("from net/http alone the other server got %q: the trap is gone", got)
	}
}

func TestTransportRedirectElsewhereByLeave(t *testing.T) {
	other := newHops(t, 0, "")
	srv := newHops(t, http.StatusTemporaryRedirect, other.URL+"/end")
	sender := over(t, nil, &client.Options{FollowTo: func(from, to *url.URL) bool {
		return "http://"+from.Host == srv.URL && "http://"+to.Host == other.URL
	}})
	resp, err := start(t, sender, srv.URL, "context")
	wantAnswer(t, resp, err, http.StatusOK, "")
	if got := other.requests(); len(got) != 4 || got[0] != `POST /end charge "order-7"` || got[3] != got[0] {
		t.Errorf("the other server got %q", got)
	}
	sender = over(t, nil, &client.Options{FollowTo: func(_, _ *url.URL) bool { return false }})
	if _, err := start(t, sender, srv.URL, "context"); !errors.Is(err, client.ErrRedirectedElsewhere) || len(other.requests()) != 4 { //nolint:bodyclose // the call fails
		t.Errorf("without leave: %v, and the other server got %q", err, other.requests())
	}
}

// The whole has one limit of time, over all redirects.
func TestTransportRedirectsShareMaxElapsed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var hops atomic.Int32
		base, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
			hops.Add(1)
			<-time.After(10 * time.Second)
			http.Redirect(w, r, "/again", http.StatusTemporaryRedirect)
		})
		begun := time.Now()
		resp, err := post(t, over(t, base, &client.Options{MaxElapsed: 25 * time.Second}), "http://pay.example/")
		retry := wantError(t, resp, err, 1)
		if took := time.Since(begun); took != 25*time.Second || retry.Elapsed != took || hops.Load() != 3 {
			t.Errorf("%d hops in %v, and %v", hops.Load(), took, err)
		}
	})
}
