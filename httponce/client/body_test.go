package client_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/everonce/everonce/httponce/client"
)

// bodies is a server that reads, fails the first requests, and remembers the bodies of all.
func bodies(t *testing.T, failures int) (url string, bodies func() []string) {
	t.Helper()
	var mu sync.Mutex
	var all []string
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		mu.Lock()
		defer mu.Unlock()
		all = append(all, string(b)+r.Trailer.Get("Sum"))
		if len(all) <= failures {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	t.Cleanup(srv.Close)
	return srv.URL, func() []string {
		mu.Lock()
		defer mu.Unlock()
		return all
	}
}

func TestTransportSendsTheBodyAnew(t *testing.T) {
	url, bodies := bodies(t, 3)
	resp, err := post(t, over(t, nil, nil), url)
	wantAnswer(t, resp, err, http.StatusOK, "")
	if got := bodies(); !slices.Equal(got, []string{"charge", "charge", "charge", "charge"}) {
		t.Errorf("the server got %q", got)
	}
}

func TestTransportRefusesABodyThatCanNotBeRepeated(t *testing.T) {
	for name, tc := range map[string]struct {
		opts   client.Options
		length int64
	}{
		"by default":                {},
		"longer than BufferRequest": {opts: client.Options{BufferRequest: 5}},
		"declared to be longer":     {opts: client.Options{BufferRequest: 5}, length: 6},
	} {
		t.Run(name, func(t *testing.T) {
			url, bodies := bodies(t, 0)
			body := &reader{Reader: strings.NewReader("charge")}
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, body)
			if err != nil {
				t.Fatal(err)
			}
			req.ContentLength = tc.length
			_, err = over(t, nil, &tc.opts).Do(req)
			if !errors.Is(err, client.ErrBodyNotRepeatable) {
				t.Errorf("got the error %v", err)
			}
			if len(bodies()) != 0 || !body.closed {
				t.Errorf("%q was sent; the body was closed: %v", bodies(), body.closed)
			}
		})
	}
}

func TestTransportBuffersABodyThatCanNotBeRepeated(t *testing.T) {
	for name, tc := range map[string]struct {
		text   string
		length int64
	}{
		"of unknown length": {"charge", 0},
		"of known length":   {"charge", 6},
		"empty":             {"", 0},
		"chunked":           {"charge", -1},
	} {
		t.Run(name, func(t *testing.T) {
			url, bodies := bodies(t, 2)
			body := &reader{Reader: strings.NewReader(tc.text)}
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, body)
			if err != nil {
				t.Fatal(err)
			}
			req.ContentLength = tc.length
			resp, err := over(t, nil, &client.Options{BufferRequest: 6}).Do(req)
			wantAnswer(t, resp, err, http.StatusOK, "")
			if got := bodies(); !slices.Equal(got, []string{tc.text, tc.text, tc.text}) || !body.closed {
				t.Errorf("the server got %q; the body was closed: %v", got, body.closed)
			}
		})
	}
}

// A trailer is known when the body has been read; every attempt has it.
func TestTransportBuffersABodyWithATrailer(t *testing.T) {
	for _, text := range []string{"charge ", ""} {
		bufferWithATrailer(t, text)
	}
}

func bufferWithATrailer(t *testing.T, text string) {
	t.Helper()
	url, bodies := bodies(t, 1)
	trailer := http.Header{"Sum": nil}
	body := io.MultiReader(strings.NewReader(text), readerFunc(func([]byte) (int, error) {
		trailer.Set("Sum", "42")
		return 0, io.EOF
	}))
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, body)
	if err != nil {
		t.Fatal(err)
	}
	req.Trailer = trailer
	resp, err := over(t, nil, &client.Options{BufferRequest: 100}).Do(req)
	wantAnswer(t, resp, err, http.StatusOK, "")
	if got := bodies(); !slices.Equal(got, []string{text + "42", text + "42"}) {
		t.Errorf("the server got %q", got)
	}
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

func TestTransportBodyThatFails(t *testing.T) {
	errDisk := errors.New("disk")
	for name, tc := range map[string]struct {
		body   io.Reader
		length int64
		want   string
	}{
		"while it is buffered": {readerFunc(func([]byte) (int, error) { return 0, errDisk }), 0, "disk"},
		"by its length":        {strings.NewReader("charge"), 5, "it has 6 bytes, ContentLength=5"},
	} {
		t.Run(name, func(t *testing.T) {
			url, bodies := bodies(t, 0)
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, io.NopCloser(tc.body))
			if err != nil {
				t.Fatal(err)
			}
			req.ContentLength = tc.length
			_, err = over(t, nil, &client.Options{BufferRequest: 100}).Do(req)
			var retry *client.RetryError
			if err == nil || errors.As(err, &retry) || !strings.Contains(err.Error(), tc.want) || len(bodies()) != 0 {
				t.Errorf("got the error %v; %q was sent", err, bodies())
			}
		})
	}
}

// A body whose writer has stopped does not hold the caller longer than its context.
func TestTransportBodyThatHangsWhileItIsBuffered(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	r, w := io.Pipe()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://127.0.0.1:1/", r)
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		_, _ = io.WriteString(w, "char") // returns when it was read
		cancel()
	}()
	_, err = over(t, nil, &client.Options{BufferRequest: 100}).Do(req)
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got the error %v", err)
	}
}

// One attempt needs no second body: what cannot be repeated is sent as it comes.
func TestTransportSingleAttemptTakesAnyBody(t *testing.T) {
	url, bodies := bodies(t, 1)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, &reader{Reader: strings.NewReader("charge")})
	if err != nil {
		t.Fatal(err)
	}
	resp, err := over(t, nil, &client.Options{MaxAttempts: 1}).Do(req)
	wantAnswer(t, resp, err, http.StatusServiceUnavailable, "")
	if got := bodies(); !slices.Equal(got, []string{"charge"}) {
		t.Errorf("the server got %q", got)
	}
}

// A GetBody that fails ends it: the error says so, and is not retried.
func TestTransportGetBodyFails(t *testing.T) {
	url, bodies := bodies(t, 5)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader("charge"))
	if err != nil {
		t.Fatal(err)
	}
	errGone := errors.New("file was removed")
	req.GetBody = func() (io.ReadCloser, error) { return nil, errGone }
	resp, err := over(t, nil, nil).Do(req)
	wantError(t, resp, err, 1)
	if !errors.Is(err, errGone) || len(bodies()) != 1 {
		t.Errorf("got the error %v after %d requests", err, len(bodies()))
	}
}
