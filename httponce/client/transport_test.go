package client_test

import (
	"context"
	"crypto/rand"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/everonce/everonce/httponce"
	"github.com/everonce/everonce/httponce/client"
)

// keys is a server that fails the first requests, and remembers the headers of all.
type keys struct {
	*httptest.Server
	mu      sync.Mutex
	headers []http.Header
}

func newKeys(t *testing.T, failures int) *keys {
	t.Helper()
	k := &keys{}
	k.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		k.mu.Lock()
		defer k.mu.Unlock()
		k.headers = append(k.headers, r.Header)
		if len(k.headers) <= failures {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		w.WriteHeader(http.StatusCreated)
	}))
	t.Cleanup(k.Close)
	return k
}

// keys returns the key's header of each request.
func (k *keys) keys(header string) []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	var all []string
	for _, h := range k.headers {
		all = append(all, strings.Join(h.Values(header), "|"))
	}
	return all
}

// A key generated per attempt in the client (gocardless-pro-python#12): each retry would be a separate operation.
func TestTransportTrapAKeyGeneratedPerAttempt(t *testing.T) {
	for _, failures := range []int{0, 1, 5} {
		srv := newKeys(t, failures)
		sender := over(t, nil, nil)
		for range 2 {
			resp, err := post(t, sender, srv.URL)
			wantAnswer(t, resp, err, http.StatusCreated, "")
		}
		keys := srv.keys("Idempotency-Key")
		if len(keys) != failures+2 {
			t.Fatalf("%d requests came, want %d", len(keys), failures+2)
		}
		first, second := keys[:failures+1], keys[failures+1]
		if first[0] == "" || len(slices.Compact(slices.Clone(first))) != 1 {
			t.Errorf("the attempts of one operation came with the keys %q", first)
		}
		if second == first[0] {
			t.Errorf("two operations have the key %s", second)
		}
		if key, err := httponce.ParseKey(second); err != nil || len(key) < 26 || !strings.HasPrefix(second, `"`) {
			t.Errorf("the key %s is no quoted string of 26 characters (%v)", second, err)
		}
	}
}

func TestTransportWhereTheKeyComesFrom(t *testing.T) {
	byPath := func(r *http.Request) (string, error) { return "path" + strings.ReplaceAll(r.URL.Path, "/", "-"), nil }
	for name, tc := range map[string]struct {
		opts   client.Options
		ctxKey string
		set    func(http.Header)
		header string
		want   string
	}{
		"the context":                {ctxKey: "order-7", want: `"order-7"`},
		"the context before KeyFunc": {opts: client.Options{KeyFunc: byPath}, ctxKey: "order-7", want: `"order-7"`},
		"KeyFunc":                    {opts: client.Options{KeyFunc: byPath}, want: `"path-orders-7"`},
		"raw":                        {opts: client.Options{RawKey: true}, ctxKey: "order-7", want: `order-7`},
		"another header":             {opts: client.Options{KeyHeader: "x-idempotency-KEY"}, ctxKey: "order-7", header: "X-Idempotency-Key", want: `"order-7"`},
		"the caller's own header":    {ctxKey: "order-7", set: func(h http.Header) { h.Set("Idempotency-Key", "raw own") }, want: `raw own`},
		"the caller's own spelling":  {ctxKey: "order-7", set: func(h http.Header) { h["idempotency-key"] = []string{"own"} }, want: `own`},
		"the caller's own two":       {ctxKey: "order-7", set: func(h http.Header) { h["Idempotency-Key"] = []string{"a", "b"} }, want: `a|b`},
	} {
		t.Run(name, func(t *testing.T) {
			srv := newKeys(t, 2)
			ctx := t.Context()
			if tc.ctxKey != "" {
				ctx = client.WithKey(ctx, tc.ctxKey)
			}
			req, err := http.NewRequestWithContext(ctx, http.MethodPatch, srv.URL+"/orders/7", strings.NewReader("x"))
			if err != nil {
				t.Fatal(err)
			}
			if tc.set != nil {
				tc.set(req.Header)
			}
			before := req.Header.Clone()
			resp, err := over(t, nil, &tc.opts).Do(req)
			wantAnswer(t, resp, err, http.StatusCreated, "")
			header := tc.header
			if header == "" {
				header = "Idempotency-Key"
			}
			if got, want := srv.keys(header), []string{tc.want, tc.want, tc.want}; !slices.Equal(got, want) {
				t.Errorf("the server got the keys %q, want %q", got, want)
			}
			if len(before) != len(req.Header) {
				t.Errorf("the caller's headers were %v, and are %v", before, req.Header)
			}
			if tc.set == nil && resp.Request.Header.Get(header) != tc.want {
				t.Errorf("the answer's request has the key %q", resp.Request.Header.Get(header))
			}
		})
	}
}

// One operation's key is asked for once, however many attempts it takes.
func TestTransportKeyFuncIsCalledOncePerOperation(t *testing.T) {
	srv := newKeys(t, 3)
	calls := 0
	sender := over(t, nil, &client.Options{KeyFunc: func(*http.Request) (string, error) {
		calls++
		return "key", nil
	}})
	resp, err := post(t, sender, srv.URL)
	wantAnswer(t, resp, err, http.StatusCreated, "")
	if got := len(srv.keys("Idempotency-Key")); calls != 1 || got != 4 {
		t.Errorf("%d calls of KeyFunc for %d attempts", calls, got)
	}
}

// An invalid key is rejected before anything is sent, and the error does not quote it; the body is closed all the same.
func TestTransportRefusesKeys(t *testing.T) {
	errNoTenant := errors.New("no tenant")
	for name, tc := range map[string]struct {
		opts client.Options
		ctx  func(context.Context) context.Context
		own  []string
		want error
	}{
		"empty in the context":     {ctx: func(ctx context.Context) context.Context { return client.WithKey(ctx, "") }, want: client.ErrInvalidKey},
		"a line break":             {ctx: func(ctx context.Context) context.Context { return client.WithKey(ctx, "se\r\ncret: 1") }, want: client.ErrInvalidKey},
		"too long":                 {ctx: func(ctx context.Context) context.Context { return client.WithKey(ctx, strings.Repeat("secret", 50)) }, want: client.ErrInvalidKey},
		"a comma, raw":             {opts: client.Options{RawKey: true}, ctx: func(ctx context.Context) context.Context { return client.WithKey(ctx, "secret,1") }, want: client.ErrInvalidKey},
		"empty by KeyFunc":         {opts: client.Options{KeyFunc: func(*http.Request) (string, error) { return "", nil }}, want: client.ErrInvalidKey},
		"refused by KeyFunc":       {opts: client.Options{KeyFunc: func(*http.Request) (string, error) { return "", errNoTenant }}, want: errNoTenant},
		"the caller's own, empty":  {own: []string{""}, want: client.ErrInvalidKey},
		"the caller's own, absent": {own: []string{}, want: client.ErrInvalidKey},
	} {
		t.Run(name, func(t *testing.T) {
			srv := newKeys(t, 0)
			ctx := t.Context()
			if tc.ctx != nil {
				ctx = tc.ctx(ctx)
			}
			body := &reader{Reader: strings.NewReader("x")}
			req, err := http.NewRequestWithContext(ctx, http.MethodPost, srv.URL, body)
			if err != nil {
				t.Fatal(err)
			}
			if tc.own != nil {
				req.Header["Idempotency-Key"] = tc.own
			}
			_, err = over(t, nil, &tc.opts).Do(req)
			if !errors.Is(err, tc.want) || strings.Contains(err.Error(), "secret") || strings.Contains(err.Error(), "cret: 1") {
				t.Errorf("got the error %v, want %v without the key", err, tc.want)
			}
			if len(srv.keys("")) != 0 || !body.closed {
				t.Errorf("%d requests were sent; the body was closed: %v", len(srv.keys("")), body.closed)
			}
		})
	}
}

// reader is a body that can be read only once, and tells whether it was closed.
type reader struct {
	io.Reader
	closed bool
}

func (r *reader) Close() error {
	r.closed = true
	return nil
}

// Requests with other methods are no operations: no key, no second attempt.
func TestTransportOtherMethodsPassUntouched(t *testing.T) {
	for _, method := range []string{"", http.MethodGet, http.MethodPut, http.MethodDelete} {
		srv := newKeys(t, 1)
		req, err := http.NewRequestWithContext(client.WithKey(t.Context(), "order-7"), method, srv.URL, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		req.Method = method
		resp, err := over(t, nil, nil).Do(req)
		wantAnswer(t, resp, err, http.StatusServiceUnavailable, "")
		if got := srv.keys("Idempotency-Key"); !slices.Equal(got, []string{""}) {
			t.Errorf("%q: the server got %q", method, got)
		}
	}
	srv := newKeys(t, 1)
	req, err := http.NewRequestWithContext(client.WithKey(t.Context(), "order-7"), http.MethodPut, srv.URL, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := over(t, nil, &client.Options{Methods: []string{"PUT"}}).Do(req)
	wantAnswer(t, resp, err, http.StatusCreated, "")
	if got := srv.keys("Idempotency-Key"); !slices.Equal(got, []string{`"order-7"`, `"order-7"`}) {
		t.Errorf("with Methods PUT the server got %q", got)
	}
	srv = newKeys(t, 1)
	if req, err = http.NewRequestWithContext(client.WithKey(t.Context(), "order-7"), http.MethodGet, srv.URL, http.NoBody); err != nil {
		t.Fatal(err)
	}
	req.Method = "" // is GET
	resp, err = over(t, nil, &client.Options{Methods: []string{"GET"}}).Do(req)
	wantAnswer(t, resp, err, http.StatusCreated, "")
	if got := srv.keys("Idempotency-Key"); !slices.Equal(got, []string{`"order-7"`, `"order-7"`}) {
		t.Errorf("with Methods GET the server got %q", got)
	}
	srv.Close()
	req = httptest.NewRequestWithContext(t.Context(), http.MethodGet, srv.URL, http.NoBody)
	req.RequestURI = ""
	var retry *client.RetryError
	if _, err := over(t, nil, nil).Do(req); err == nil || errors.As(err, &retry) { //nolint:bodyclose // the call fails
		t.Errorf("the error of what is no operation is %v, want the base's", err)
	}
}

type idle struct {
	roundTrip
	closed int
}

func (i *idle) CloseIdleConnections() { i.closed++ }

// Without a base it clones the current default transport; the base's idle connections are closed through it.
func TestTransportBase(t *testing.T) {
	tr, err := client.NewTransport(nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(tr.CloseIdleConnections)
	scheme := "later" + strings.ToLower(rand.Text())
	http.DefaultTransport.(*http.Transport).RegisterProtocol(scheme, roundTrip(func(*http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody}, nil
	}))
	if _, err := post(t, &http.Client{Transport: tr}, scheme+"://pay.example/"); err == nil { //nolint:bodyclose // the call fails
		t.Error("what the default can do by now, it can too")
	}
	base := &idle{}
	if tr, err = client.NewTransport(base, nil); err != nil {
		t.Fatal(err)
	}
	if (&http.Client{Transport: tr}).CloseIdleConnections(); base.closed != 1 {
		t.Errorf("the base was asked %d times", base.closed)
	}
}

func TestTransportOptionsAreChecked(t *testing.T) {
	for name, opts := range map[string]client.Options{
		"KeyHeader":          {KeyHeader: "Idempotency Key"},
		"Marker":             {Marker: "Was Replayed"},
		"Methods":            {Methods: []string{"PO ST"}},
		"RetryStatuses":      {RetryStatuses: []int{200}},
		"Backoff":            {Backoff: -1},
		"MaxBackoff":         {Backoff: 2, MaxBackoff: 1},
		"MaxAttempts":        {MaxAttempts: -1},
		"BufferRequest":      {BufferRequest: -1},
		"BufferAnswer":       {BufferAnswer: 1 << 50},
		"MaxBackoff is ":     {MaxBackoff: 1 << 62},
		"RetryStatuses cont": {RetryStatuses: []int{503, 600}},
		"RetryStatuses ":     {RetryStatuses: []int{399}},
	} {
		_, err := client.NewTransport(nil, &opts)
		if err == nil || !strings.Contains(err.Error(), "Options."+name) {
			t.Errorf("%s: got the error %v", name, err)
		}
	}
}

// A first pause that is longer than the longest by default is the longest.
func TestTransportLongBackoff(t *testing.T) {
	if _, err := client.NewTransport(nil, &client.Options{Backoff: time.Minute}); err != nil {
		t.Error(err)
	}
}

// The lists that were given may be changed afterwards, and the default's copy too.
func TestTransportOptionsAreCopied(t *testing.T) {
	statuses, methods := client.DefaultRetryStatuses(), []string{http.MethodPost}
	tr, err := client.NewTransport(nil, &client.Options{RetryStatuses: statuses, Methods: methods, Backoff: 1, MaxBackoff: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(tr.CloseIdleConnections)
	for i := range statuses {
		statuses[i] = 0
	}
	methods[0] = http.MethodPut
	srv := newKeys(t, 1)
	resp, err := post(t, &http.Client{Transport: tr}, srv.URL)
	wantAnswer(t, resp, err, http.StatusCreated, "")
	if slices.Contains(client.DefaultRetryStatuses(), 0) {
		t.Error("the default was changed through its copy")
	}
}
