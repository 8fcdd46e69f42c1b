package webhook_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/httponce"
	"github.com/everonce/everonce/outbox"
	"github.com/everonce/everonce/outbox/webhook"
	"github.com/everonce/everonce/store/memstore"
)

const secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"

var private = &webhook.Options{AllowPrivate: true}

func serve(t *testing.T, h http.HandlerFunc) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s
}

// sent publishes one event, and returns its error.
func sent(t *testing.T, to webhook.Endpoint, opts *webhook.Options, e outbox.Event) error {
	t.Helper()
	p, err := webhook.New(to, opts)
	if err != nil {
		t.Fatal(err)
	}
	return errors.Join(p.Publish(t.Context(), []outbox.Event{e})...)
}

func event() outbox.Event {
	return outbox.Event{ID: "e-1", Topic: "orders", Type: "order.placed", ContentType: "application/json", Payload: []byte(`{"id":7}`)}
}

// An event's headers cannot replace the headers of this package.
func TestWhatIsSent(t *testing.T) {
	var got *http.Request
	var body []byte
	s := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		got = r
		body, _ = io.ReadAll(r.Body) //nolint:errcheck // it is compared
	})
	e := event()
	e.Headers = map[string]string{"traceparent": "00-1", "connection": "close", "webhook-id": "forged", "idempotency-key": "forged", "WEBHOOK-SIGNATURE": "forged"}
	header := http.Header{"authorization": {"Bearer x"}}
	if err := sent(t, webhook.Endpoint{URL: s.URL + "/hook?x=1", Header: header}, private, e); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"Idempotency-Key": `"e-1"`, "Webhook-Id": "e-1", "Webhook-Signature": "", "Ce-Source": "orders", "Ce-Type": "order.placed",
		"Traceparent": "00-1", "Authorization": "Bearer x", "Content-Type": "application/json", "Connection": "",
	} {
		if value := strings.Join(got.Header[name], ","); value != want {
			t.Errorf("%s: %q, want %q", name, value, want)
		}
	}
	if got.Method != http.MethodPost || got.RequestURI != "/hook?x=1" || string(body) != `{"id":7}` {
		t.Errorf("%s %s with %s", got.Method, got.RequestURI, body)
	}
	if err := sent(t, webhook.Endpoint{URL: s.URL, Secrets: []string{secret, secret}}, private, e); err != nil {
		t.Fatal(err)
	}
	if signed := strings.Fields(got.Header.Get("Webhook-Signature")); len(signed) != 2 || !strings.HasPrefix(signed[0], "v1,") {
		t.Errorf("signed as %q", signed)
	}
	e.Headers = map[string]string{"x-note": "two\r\nlines"}
	if err := sent(t, webhook.Endpoint{URL: s.URL}, private, e); !isPermanent(err) {
		t.Errorf("a header of two lines: %v", err)
	}
}

func isPermanent(err error) bool {
	_, ok := errors.AsType[*everonce.PermanentError](err)
	return ok
}

func TestAnswers(t *testing.T) {
	var answer func(w http.ResponseWriter)
	s := serve(t, func(w http.ResponseWriter, _ *http.Request) { answer(w) })
	problem := func(kind, title string) func(http.ResponseWriter) {
		return func(w http.ResponseWriter) {
			w.Header().Set("Content-Type", "application/problem+json")
			w.WriteHeader(http.StatusConflict)
			fmt.Fprintf(w, `{"type":%q,"title":%q}`, kind, title)
		}
	}
	status := func(code int) func(http.ResponseWriter) {
		return func(w http.ResponseWriter) { w.WriteHeader(code) }
	}
	const done, again, never = "published", "tried again", "set aside"
	for name, tc := range map[string]struct {
		answer func(http.ResponseWriter)
		want   string
	}{
		"200": {status(200), done}, "204": {status(204), done}, "299": {status(299), done},
		"304": {status(304), again}, "408": {status(408), again}, "425": {status(425), again}, "429": {status(429), again}, "500": {status(500), again}, "503": {status(503), again}, "599": {status(599), again},
		"400": {status(400), never}, "401": {status(401), never}, "404": {status(404), never}, "410": {status(410), never}, "422": {status(422), never}, "409": {status(409), never},
		"409 in progress":     {problem("https://example.com/problems/in-progress", ""), again},
		"409 the draft's":     {problem("", "A request is outstanding for this Idempotency-Key"), again},
		"409 outcome unknown": {problem("https://example.com/problems/outcome-unknown", "The outcome of this operation is unknown"), never},
	} {
		answer = tc.answer
		err := sent(t, webhook.Endpoint{URL: s.URL}, private, event())
		got := again
		switch {
		case err == nil:
			got = done
		case isPermanent(err):
			got = never
		case errors.Is(err, outbox.ErrUnavailable):
			got = "unavailable"
		}
		if got != tc.want {
			t.Errorf("%s: %s, want %s: %v", name, got, tc.want, err)
		}
		if p, ok := errors.AsType[*everonce.PermanentError](err); ok && (p.Code == "gone") != (name == "410") {
			t.Errorf("%s: the code %q", name, p.Code)
		}
	}
}

// An endpoint that is away, or does not answer, is no failure of the event.
func TestNoAnswer(t *testing.T) {
	hangs := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) //nolint:errcheck // the end of the connection is noticed by it
		<-r.Context().Done()
	})
	breaks := serve(t, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	gone := serve(t, nil)
	gone.Close()
	for _, url := range []string{hangs.URL, breaks.URL, gone.URL} {
		if err := sent(t, webhook.Endpoint{URL: url}, &webhook.Options{AllowPrivate: true, Timeout: 100 * time.Millisecond}, event()); !errors.Is(err, outbox.ErrUnavailable) {
			t.Errorf("%s: %v", url, err)
		}
	}
}

// A chosen URL, or a redirect from it, reaches only public addresses.
func TestPrivateAddresses(t *testing.T) {
	inside := 0
	s := serve(t, func(http.ResponseWriter, *http.Request) { inside++ })
	_, port, _ := strings.Cut(s.Listener.Addr().String(), ":")
	for _, host := range []string{"127.0.0.1", "localhost", "[::ffff:127.0.0.1]", "0.0.0.0"} {
		err := sent(t, webhook.Endpoint{URL: "http://" + host + ":" + port}, nil, event())
		if err == nil || errors.Is(err, outbox.ErrUnavailable) || !strings.Contains(err.Error(), "not public") {
			t.Errorf("%s: %v", host, err)
		}
	}
	for name, location := range map[string]string{"another port": s.URL, "another name": "http://localhost:" + port, "a name for it": "//127.0.0.2:" + port} {
		leads := serve(t, func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, location, http.StatusTemporaryRedirect)
		})
		if err := sent(t, webhook.Endpoint{URL: leads.URL}, private, event()); err == nil || errors.Is(err, outbox.ErrUnavailable) || isPermanent(err) {
			t.Errorf("a redirect to %s: %v", name, err)
		}
	}
	if inside > 0 {
		t.Errorf("%d requests came inside", inside)
	}
}

// A redirect on the same host keeps method and body; one that would make it a GET is not followed.
func TestRedirects(t *testing.T) {
	var seen []string
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body) //nolint:errcheck // it is compared
		seen = append(seen, r.Method+r.URL.Path+string(body)+r.Header.Get("Idempotency-Key"))
		switch r.URL.Path {
		case "/308":
			http.Redirect(w, r, "/here", http.StatusPermanentRedirect)
		case "/302":
			http.Redirect(w, r, "/here", http.StatusFound)
		case "/round":
			http.Redirect(w, r, "/round", http.StatusPermanentRedirect)
		}
	})
	if err := sent(t, webhook.Endpoint{URL: s.URL + "/308"}, private, event()); err != nil {
		t.Error(err)
	}
	for _, path := range []string{"/302", "/round"} {
		if err := sent(t, webhook.Endpoint{URL: s.URL + path}, private, event()); err == nil {
			t.Errorf("%s: it was followed", path)
		}
	}
	if want := []string{`POST/308{"id":7}"e-1"`, `POST/here{"id":7}"e-1"`, `POST/302{"id":7}"e-1"`}; !slices.Equal(seen[:3], want) || len(seen) > 8 {
		t.Errorf("%q", seen)
	}
}

// No error tells a secret, or what stands in a URL.
func TestErrorsTellNoSecrets(t *testing.T) {
	const hidden = "s3cret"
	refuses := serve(t, func(w http.ResponseWriter, r *http.Request) { http.Error(w, r.RequestURI, http.StatusBadRequest) })
	gone := serve(t, nil)
	gone.Close()
	at := func(url string) webhook.Endpoint {
		return webhook.Endpoint{URL: url + "/" + hidden + "?token=" + hidden, Header: http.Header{"Authorization": {hidden}}}
	}
	withUser := at(strings.Replace(gone.URL, "http://", "http://user:"+hidden+"@", 1))
	for name, to := range map[string]webhook.Endpoint{
		"refused": at(refuses.URL), "gone": at(gone.URL), "with a password": withUser, "no URL": at("http://bad host\x7f"), "another scheme": at("ftp://example.com"),
		"no secret": {URL: gone.URL, Secrets: []string{"whsec_" + hidden}}, "a bad header": {URL: gone.URL, Header: http.Header{"X": {hidden + "\n"}}},
	} {
		p, err := webhook.NewFunc(func(context.Context, *outbox.Event) (webhook.Endpoint, error) { return to, nil }, private)
		if err != nil {
			t.Fatal(err)
		}
		if err = errors.Join(p.Publish(t.Context(), []outbox.Event{event()})...); err == nil || strings.Contains(err.Error(), hidden) {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := webhook.New(to, nil); err != nil && (!errors.Is(err, everonce.ErrInvalidArgument) || strings.Contains(err.Error(), hidden)) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Events with one key are sent one after the other, and none behind one that failed; others at the same time. A service
// behind package httponce takes an event once, however often it is sent.
func TestAServiceThatTakesEachOnce(t *testing.T) {
	receiver, err := everonce.NewReceiver(memstore.New(nil), everonce.Refuse, nil)
	if err != nil {
		t.Fatal(err)
	}
	once, err := httponce.Middleware(receiver, func(*http.Request) (string, error) { return "everybody", nil }, nil)
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var came []string
	s := httptest.NewServer(once(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		if came = append(came, r.Header.Get("Webhook-Id")); r.Header.Get("Webhook-Id") == "b%2E1" {
			w.WriteHeader(http.StatusUnprocessableEntity)
		}
	})))
	defer s.Close()
	p, err := webhook.New(webhook.Endpoint{URL: s.URL, Secrets: []string{secret}}, private)
	if err != nil {
		t.Fatal(err)
	}
	var events []outbox.Event
	for _, id := range []string{"a.1", "b.1", "a.2", "b.2", "c.1"} {
		e := event()
		e.ID, e.Key = id, id[:1]
		events = append(events, e)
	}
	for range 2 {
		errs := p.Publish(t.Context(), events)
		for i, failed := range []bool{false, true, false, true, false} {
			if (errs[i] != nil) != failed {
				t.Errorf("%s: %v", events[i].ID, errs[i])
			}
		}
	}
	if slices.Index(came, "a%2E1") > slices.Index(came, "a%2E2") || len(came) != 4 {
		t.Errorf("%q were handled", came)
	}
}
