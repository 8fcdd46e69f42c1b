package oncetest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
)

// TwiceOptions are the options of [TwiceTransport] and [TwiceHandler]. The zero value of each field is its default.
type TwiceOptions struct {
	// Return says which answer is returned. Default Second.
	Return Which
	// Differs names the headers in which a duplicate's answer may differ from the first: list them in the
	// documentation of what is tested. Default [DifferingHeaders].
	Differs []string
	// Only selects the requests that are sent twice. Default: all.
	Only func(*http.Request) bool
	// Same compares two answers whose bodies have been read, and returns an error that says what is wrong. Default:
	// status, headers but for those in Differs, trailers and body are equal.
	Same func(first, second *http.Response, firstBody, secondBody []byte) error
}

// DifferingHeaders returns the headers in which answers may differ by default: Date, and the mark of a replay,
// Idempotent-Replayed.
func DifferingHeaders() []string { return []string{"Date", "Idempotent-Replayed"} }

// TwiceTransport returns a transport that sends every request twice through rt, the second time after the first has
// been answered. With http.Client{Transport: …} a whole suite of tests runs that way. If the answers differ, the test
// fails. Bodies are read whole, before they are sent and before the answer is returned: it is not for streams, and
// not for requests that take over the connection.
//
// If the first request fails, its error is returned, and nothing is sent again.
func TwiceTransport(tb testing.TB, rt http.RoundTripper, opts *TwiceOptions) http.RoundTripper {
	return &twiceTransport{tb: tb, next: rt, twice: newTwice(opts)}
}

// TwiceHandler returns a handler that passes every request to h twice, the second time after the first has
// returned, and then answers with one of the two: see [TwiceTransport]. The response of h is recorded: h cannot
// flush, hijack or push.
func TwiceHandler(tb testing.TB, h http.Handler, opts *TwiceOptions) http.Handler {
	t := newTwice(opts)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		tb.Helper()
		if !t.only(r) {
			h.ServeHTTP(w, r)
			return
		}
		body, err := readBody(r)
		if err != nil {
			http.Error(w, "oncetest: the body cannot be read: "+err.Error(), http.StatusBadRequest)
			return
		}
		serve := func() answer {
			rec := httptest.NewRecorder()
			h.ServeHTTP(rec, withBody(r, body))
			return answer{rec.Result(), rec.Body.Bytes()}
		}
		first := serve()
		if r.Context().Err() != nil { // no client would send again
			first.write(w)
			return
		}
		second := serve()
		t.compare(tb, r, first, second)
		t.choose(first, second).write(w)
	})
}

type twiceTransport struct {
	tb    testing.TB
	next  http.RoundTripper
	twice twice
}

// RoundTrip implements [http.RoundTripper].
func (t *twiceTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	t.tb.Helper()
	if !t.twice.only(r) {
		return t.next.RoundTrip(r)
	}
	body, err := readBody(r)
	if err != nil {
		return nil, fmt.Errorf("oncetest: the request's body cannot be read: %w", err)
	}
	first, err := t.send(r, body)
	if err != nil {
		return nil, err
	}
	if r.Context().Err() != nil {
		return first.response, nil
	}
	second, err := t.send(r, body)
	if err != nil {
		t.tb.Errorf("oncetest: %s %s was sent twice: the first was answered %s, and the second not: %v", r.Method, r.URL.Path, first.response.Status, err)
		return first.response, nil
	}
	t.twice.compare(t.tb, r, first, second)
	return t.twice.choose(first, second).response, nil
}

func (t *twiceTransport) send(r *http.Request, body []byte) (a answer, err error) {
	if a.response, err = t.next.RoundTrip(withBody(r, body)); err != nil { //nolint:bodyclose // closed below
		return a, err
	}
	a.body, err = io.ReadAll(a.response.Body)
	err = errors.Join(err, a.response.Body.Close())
	a.response.Body = io.NopCloser(bytes.NewReader(a.body))
	return a, err
}

// readBody reads and closes the body of a request.
func readBody(r *http.Request) ([]byte, error) {
	if r.Body == nil || r.Body == http.NoBody {
		return nil, nil
	}
	body, err := io.ReadAll(r.Body)
	return body, errors.Join(err, r.Body.Close())
}

// withBody returns a copy of the request with a fresh body. The trailers of the original are known, for
// its body has been read.
func withBody(r *http.Request, body []byte) *http.Request {
	c := r.Clone(r.Context())
	if r.Body == nil || r.Body == http.NoBody {
		return c
	}
	c.Body = io.NopCloser(bytes.NewReader(body))
	c.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }
	return c
}

// answer is a response whose body has been read.
type answer struct {
	response *http.Response
	body     []byte
}

// write answers a request with it.
func (a answer) write(w http.ResponseWriter) {
	h := w.Header()
	maps.Copy(h, a.response.Header)
	for name := range a.response.Trailer {
		h.Add("Trailer", name)
	}
	w.WriteHeader(a.response.StatusCode)
	_, _ = w.Write(a.body) //nolint:errcheck // the client has gone: the error has no receiver
	maps.Copy(h, a.response.Trailer)
}

// twice are the options with their defaults in place.
type twice struct{ TwiceOptions }

func newTwice(opts *TwiceOptions) (t twice) {
	if opts != nil {
		t.TwiceOptions = *opts
	}
	if t.Differs == nil {
		t.Differs = DifferingHeaders()
	}
	if t.Same == nil {
		t.Same = t.same
	}
	return t
}

func (t *twice) only(r *http.Request) bool { return t.Only == nil || t.Only(r) }

func (t *twice) choose(first, second answer) answer {
	if t.Return == First {
		return first
	}
	return second
}

func (t *twice) compare(tb testing.TB, r *http.Request, first, second answer) {
	tb.Helper()
	if err := t.Same(first.response, second.response, first.body, second.body); err != nil {
		tb.Errorf("oncetest: %s %s was sent twice: %v", r.Method, r.URL.Path, err)
	}
}

// same is the default of TwiceOptions.Same.
func (t *twice) same(first, second *http.Response, firstBody, secondBody []byte) error {
	if first.StatusCode != second.StatusCode {
		return fmt.Errorf("the first was answered %d, and the second %d", first.StatusCode, second.StatusCode)
	}
	for _, of := range []struct {
		what          string
		first, second http.Header
	}{{"header", first.Header, second.Header}, {"trailer", first.Trailer, second.Trailer}} {
		if name, differs := t.differing(of.first, of.second); differs {
			return fmt.Errorf("the %s %s was %q in the first answer, and %q in the second", of.what, name, of.first.Values(name), of.second.Values(name))
		}
	}
	if !bytes.Equal(firstBody, secondBody) {
		return fmt.Errorf("the bodies differ: %s, and %s", excerpt(firstBody), excerpt(secondBody))
	}
	return nil
}

// differing returns the first header, in the order of names, that differs and must not.
func (t *twice) differing(first, second http.Header) (string, bool) {
	names := slices.Sorted(maps.Keys(first))
	for name := range second {
		if _, both := first[name]; !both {
			names = append(names, name)
		}
	}
	for _, name := range names {
		allowed := slices.ContainsFunc(t.Differs, func(d string) bool { return http.CanonicalHeaderKey(d) == name })
		if !allowed && !slices.Equal(first[name], second[name]) {
			return name, true
		}
	}
	return "", false
}

func excerpt(body []byte) string {
	const most = 200
	if len(body) > most {
		return fmt.Sprintf("%q… (%d bytes)", body[:most], len(body))
	}
	return fmt.Sprintf("%q", body)
}
