package httponce_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/httponce"
	"github.com/everonce/everonce/oncetest"
)

// withStatus puts the status handler of a service beside it.
func (svc *service) withStatus(principal httponce.Principal, opts *httponce.Options) http.Handler {
	svc.t.Helper()
	var recv everonce.AnyReceiver = svc.recv
	if svc.db != nil {
		recv = svc.recvTx
	}
	h, err := httponce.Status(recv, principal, "POST /payments", opts)
	if err != nil {
		svc.t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.Handle("GET /status/{key}", h)
	mux.Handle("/status", h)
	return mux
}

// ask returns what the status handler says of a key.
func (svc *service) ask(key string) got {
	svc.t.Helper()
	return read(svc.t, send(svc.withStatus(httponce.Unscoped(), nil), http.MethodGet, "/status/"+url.PathEscape(key), ""))
}

// The documented status is the one that the handler serves.
func TestStatusIsAsDocumented(t *testing.T) {
	payment := func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Location", "/payments/1")
		w.WriteHeader(http.StatusCreated)
		_, _ = w.Write([]byte(`{"id":1}`))
	}
	picture := func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "image/png")
		_, _ = w.Write([]byte{0x89, 'P', 'N', 'G'})
	}
	for i, c := range []struct {
		handle http.HandlerFunc
		do     func(*service) got
	}{
		{payment, func(svc *service) got { svc.post("k"); return svc.ask("k") }},
		{picture, func(svc *service) got { svc.post("k"); return svc.ask("k") }},
		{payment, func(svc *service) got {
			svc.post("k")
			time.Sleep(25 * time.Hour)
			return svc.ask("k")
		}},
		{payment, func(svc *service) (g got) {
			svc.during = func() { g = svc.ask("k") }
			svc.post("k")
			return g
		}},
	} {
		synctest.Test(t, func(t *testing.T) {
			g := c.do(newService(t, setup{handle: c.handle}))
			if want := quoted(t, "http-status.md", "json", i); g.body != want || g.status != 200 {
				t.Errorf("it serves %d\n%s and the documentation has\n%s", g.status, g.body, want)
			}
			if g.header.Get("Content-Type") != "application/json" || g.header.Get("Cache-Control") != "no-store" {
				t.Errorf("with %v", g.header)
			}
		})
	}
}

// Each state of a record has one answer, in both modes.
func TestStatusOfEachState(t *testing.T) {
	const key = `8e03978e-40d5-43dd-bc93-6894a57f9324`
	for name, c := range map[string]struct {
		setup      setup
		do         func(*service) got
		status     int
		state      string
		inside     string // what the document holds besides
		retryAfter string
	}{
		"not seen":       {setup{handle: answers(201, "paid")}, func(svc *service) got { return svc.ask(key) }, 404, "not_seen", "", ""},
		"done":           {setup{handle: answers(201, "paid")}, askAfter(key), 200, "done", `"status":201`, ""},
		"refused":        {setup{handle: answers(402, "no money")}, askAfter(key), 200, "done", `"status":402,"headers":{"Location":["/payments/1"]},"body":"no money"`, ""},
		"not done":       {setup{handle: answers(429, "later")}, askAfter(key), 200, "not_done", "", ""},
		"unknown":        {setup{handle: answers(500, "sorry")}, askAfter(key), 200, "unknown", "", ""},
		"elided":         {setup{handle: answers(201, "paid"), opts: httponce.Options{Route: httponce.Route{MaxAnswer: 1}}}, askAfter(key), 200, "done", `"missing":"elided"`, ""},
		"elided refusal": {setup{handle: answers(402, "no money"), opts: httponce.Options{Route: httponce.Route{MaxAnswer: 1}}}, askAfter(key), 200, "done", `"status":402,"headers":{"Location":["/payments/1"]},"missing":"elided"`, ""},
		"in progress": {setup{handle: answers(201, "paid")}, func(svc *service) (g got) {
			svc.during = func() { g = svc.ask(key) }
			svc.post(key)
			return g
		}, 200, "in_progress", "", "1"},
		"in a transaction": {setup{handleTx: charges(201, "paid", nil)}, func(svc *service) (g got) {
			svc.during = func() { g = svc.ask(key) }
			svc.post(key)
			return g
		}, 404, "not_seen", "", ""},
		"committed":   {setup{handleTx: charges(201, "paid", nil)}, askAfter(key), 200, "done", `"body":"paid"`, ""},
		"rolled back": {setup{handleTx: charges(500, "sorry", nil)}, askAfter(key), 404, "not_seen", "", ""},
		"refused by code": {
			setup{handleTx: charges(0, "", everonce.Permanent("no_funds", errors.New("the account is empty"), nil))}, askAfter(key), 200, "done", `\"code\":\"no_funds\"`, "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			svc := newService(t, c.setup)
			g := c.do(svc)
			if g.status != c.status || !strings.HasPrefix(g.body, `{"state":"`+c.state+`"`) || !strings.Contains(g.body, c.inside) || g.retryAfter != c.retryAfter {
				t.Errorf("it got %+v", g)
			}
			if !json.Valid([]byte(g.body)) || g.mark != "" {
				t.Errorf("it got %+v", g)
			}
		})
	}
}

func askAfter(key string) func(*service) got {
	return func(svc *service) got {
		svc.post(key)
		return svc.ask(key)
	}
}

// The body of a large answer is whole, wherever its parts are kept.
func TestStatusOfALargeAnswer(t *testing.T) {
	large := strings.Repeat("0123456789abcdef", 40_000) // 640 kB
	for name, s := range map[string]setup{
		"guarded": {handle: answers(201, large)}, "transactional": {handleTx: charges(201, large, nil)},
	} {
		svc := newService(t, s)
		svc.post("k")
		var doc struct {
			Answer struct{ Body, Missing string }
		}
		if err := json.Unmarshal([]byte(svc.ask("k").body), &doc); err != nil {
			t.Fatal(err)
		}
		if doc.Answer.Body != large || doc.Answer.Missing != "" {
			t.Errorf("%s: a body of %d bytes, missing %q", name, len(doc.Answer.Body), doc.Answer.Missing)
		}
		if g := svc.post("k"); g.body != large || g.mark != "true" {
			t.Errorf("%s: a replay of %d bytes, marked %q", name, len(g.body), g.mark)
		}
	}
}

// A piece that cannot be read leaves status and headers; the log names the key as all others do.
func TestStatusOfAPieceThatCannotBeRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		svc := newService(t, setup{handle: answers(201, strings.Repeat("0123456789abcdef", 40_000))})
		svc.post("k")
		var logs bytes.Buffer
		h := svc.withStatus(httponce.Unscoped(), &httponce.Options{Log: slog.New(slog.NewTextHandler(&logs, nil))})
		head := true
		svc.fail(func(c oncetest.Call) oncetest.Fault {
			if c.Op == oncetest.OpGet && !head {
				return oncetest.FailBefore
			}
			head = false
			return oncetest.Pass
		})
		if g := read(t, send(h, http.MethodGet, "/status/k", "")); g.status != 200 || !strings.Contains(g.body, `"missing":"elided"`) {
			t.Errorf("it got %+v", g)
		}
		if want := "key=" + svc.recv.RecordID(keyOf("k")).Short(); !strings.Contains(logs.String(), want) {
			t.Errorf("logged was %s, want %s", logs.String(), want)
		}
	})
}

// Trailers, bytes that are not UTF-8, and characters that JSON escapes arrive unchanged.
func TestStatusKeepsBytes(t *testing.T) {
	for _, body := range []string{"", "<script>&\u2028</script>", "\x00\x01\n\"", "\xff\xfe", "é\xc3"} {
		svc := newService(t, setup{handle: func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Trailer", "X-Sum")
			_, _ = w.Write([]byte(body))
			w.Header().Set("X-Sum", "42")
		}})
		svc.post("k")
		var doc struct {
			Answer struct {
				Body     *string
				Base64   []byte `json:"body_base64"`
				Trailers http.Header
				Headers  http.Header
			}
		}
		if err := json.Unmarshal([]byte(svc.ask("k").body), &doc); err != nil {
			t.Fatal(err)
		}
		got := doc.Answer.Base64
		if doc.Answer.Body != nil {
			got = []byte(*doc.Answer.Body)
		}
		if !bytes.Equal(got, []byte(body)) || doc.Answer.Trailers.Get("X-Sum") != "42" {
			t.Errorf("%q became %q, %v", body, got, doc.Answer.Trailers)
		}
		if declared, ok := doc.Answer.Headers["Trailer"]; ok { // they are listed as trailers, and not announced
			t.Errorf("its headers have Trailer: %q", declared)
		}
	}
}

// A key is the same in the path and in the header, raw and quoted.
func TestStatusOfEverySpelling(t *testing.T) {
	for _, c := range []struct{ sent, path, header string }{
		{"abc", "abc", "abc"},
		{"abc", `"abc"`, `"abc"`},
		{`"abc"`, "abc", "abc"},
		{`"a b, c/d"`, "a b, c/d", `"a b, c/d"`},
		{`"\"q"`, `"\"q"`, `"\"q"`},
	} {
		svc := newService(t, setup{handle: answers(201, "paid")})
		svc.post(c.sent)
		if g := svc.ask(c.path); g.status != 200 {
			t.Errorf("%s in the path as %s: %+v", c.sent, c.path, g)
		}
		if g := read(t, send(svc.withStatus(httponce.Unscoped(), nil), http.MethodGet, "/status", "", "Idempotency-Key", c.header)); g.status != 200 {
			t.Errorf("%s in the header as %s: %+v", c.sent, c.header, g)
		}
	}
}

// A status that cannot be read is a problem.
func TestStatusProblems(t *testing.T) {
	svc := newService(t, setup{handle: answers(201, "paid")})
	h := svc.withStatus(httponce.Unscoped(), nil)
	nobody := svc.withStatus(func(*http.Request) (string, error) { return "", errors.New("secret") }, nil)
	for name, c := range map[string]struct {
		res     *http.Response
		status  int
		problem string
	}{
		"no key":         {send(h, http.MethodGet, "/status", ""), 400, "missing-key"},
		"an empty key":   {send(h, http.MethodGet, "/status", "", "Idempotency-Key", ""), 400, "invalid-key"},
		"two keys":       {send(h, http.MethodGet, "/status", "", "Idempotency-Key", "a", "Idempotency-Key", "b"), 400, "invalid-key"},
		"no ASCII":       {send(h, http.MethodGet, "/status/%C3%A9", ""), 400, "invalid-key"},
		"control":        {send(h, http.MethodGet, "/status/a%01b", ""), 400, "invalid-key"},
		"a broken quote": {send(h, http.MethodGet, "/status/%22a", ""), 400, "invalid-key"},
		"too long":       {send(h, http.MethodGet, "/status/"+strings.Repeat("a", 256), ""), 400, "invalid-key"},
		"no principal":   {send(nobody, http.MethodGet, "/status/a", ""), 403, "no-principal"},
	} {
		if g := read(t, c.res); g.status != c.status || g.problem != c.problem || strings.Contains(g.body, "secret") {
			t.Errorf("%s: %+v", name, g)
		}
	}
	if res := send(h, http.MethodPost, "/status", "", "Idempotency-Key", "a"); res.StatusCode != http.StatusMethodNotAllowed || res.Header.Get("Allow") != "GET, HEAD" {
		t.Errorf("POST: %d %v", res.StatusCode, res.Header)
	}
	synctest.Test(t, func(t *testing.T) {
		svc.fail(everything)
		if g := read(t, send(h, http.MethodGet, "/status/a", "")); g.status != 503 || g.problem != "store-unavailable" || g.retryAfter != "5" {
			t.Errorf("no store: %+v", g)
		}
		svc.fail(nil)
	})
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	w := httptest.NewRecorder()
	if h.ServeHTTP(w, httptest.NewRequestWithContext(gone, http.MethodGet, "/status/a", http.NoBody)); w.Code != 503 { // no 404, of which somebody may make that it was never sent
		t.Errorf("whose client has gone: %d %s", w.Code, w.Body)
	}
	if _, err := everonce.Do(t.Context(), svc.recv, keyOf("other"), func(context.Context, *everonce.Attempt) (string, error) { return "", nil }); err != nil {
		t.Fatal(err)
	}
	if g := svc.ask("other"); g.status != 503 || g.problem != "record-unreadable" {
		t.Errorf("of another program: %+v", g)
	}
}

// A saved answer with an invalid status cannot be read, and the log names its key.
func TestStatusOfAnAnswerWithoutAStatus(t *testing.T) {
	for name, saved := range map[string]everonce.Settlement{
		"JSON, below": {Encoded: []byte(`{"status":42}`)}, "JSON, above": {Encoded: []byte(`{"status":1000}`)}, "JSON, negative": {Encoded: []byte(`{"status":-1}`)},
		"below": {Encoded: []byte{1, 0, 42, 0}, Codec: "http/1"}, "above": {Encoded: []byte{1, 0, 0xe8, 7, 0}, Codec: "http/1"},
	} {
		var logs bytes.Buffer
		svc := newService(t, setup{handle: answers(500, "sorry")})
		svc.post("k")
		saved.Verdict = everonce.SettleDone
		if err := svc.recv.Settle(t.Context(), keyOf("k"), saved); err != nil {
			t.Fatal(name, err)
		}
		h := svc.withStatus(httponce.Unscoped(), &httponce.Options{Log: slog.New(slog.NewTextHandler(&logs, nil))})
		if g := read(t, send(h, http.MethodGet, "/status/k", "")); g.status != 503 || g.problem != "record-unreadable" {
			t.Errorf("%s: it got %+v", name, g)
		}
		if want := "key=" + svc.recv.RecordID(keyOf("k")).Short(); strings.Count(logs.String(), "\n") != 1 || !strings.Contains(logs.String(), want) {
			t.Errorf("%s: logged was %q, want one line with %s", name, logs.String(), want)
		}
	}
}

// A key's status is shown to its own principal, for its own route: another's key is not seen, whatever its outcome was.
func TestStatusTellsNothingToOthers(t *testing.T) {
	svc := newService(t, setup{handle: answers(201, "paid")})
	svc.post("k")
	for name, h := range map[string]http.Handler{
		"another principal": svc.withStatus(func(*http.Request) (string, error) { return "mallory", nil }, nil),
		"another route":     status(t, svc.recv, "POST /refunds"),
		"another method":    status(t, svc.recv, "PATCH /payments"),
	} {
		a, b := read(t, send(h, http.MethodGet, "/status/k", "")), read(t, send(h, http.MethodGet, "/status/never", ""))
		if a.status != 404 || a.body != b.body || len(a.header) != len(b.header) {
			t.Errorf("%s: %+v; of a key that never was: %+v", name, a, b)
		}
	}
}

func status(t *testing.T, recv everonce.AnyReceiver, route string) http.Handler {
	t.Helper()
	h, err := httponce.Status(recv, httponce.Unscoped(), route, nil)
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.Handle("GET /status/{key}", h)
	return mux
}

// A status is no attempt: it writes nothing, and asks the store once.
func TestStatusWritesNothing(t *testing.T) {
	svc := newService(t, setup{handle: answers(201, "paid")})
	svc.post("k")
	reads := 0
	svc.fail(func(c oncetest.Call) oncetest.Fault {
		if reads++; c.Op != oncetest.OpGet && c.Op != oncetest.OpIdentity {
			t.Errorf("it called %v", c.Op)
		}
		return oncetest.Pass
	})
	svc.ask("k")
	svc.ask("never")
	if reads > 2 {
		t.Errorf("it made %d calls", reads)
	}
}

// A HEAD has the headers alone.
func TestStatusOfAHead(t *testing.T) {
	svc := newService(t, setup{handle: answers(201, "paid")})
	svc.post("k")
	server := httptest.NewServer(svc.withStatus(httponce.Unscoped(), nil))
	defer server.Close()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodHead, server.URL+"/status/k", nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := server.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK || res.ContentLength <= 0 {
		t.Errorf("it got %d, %d bytes", res.StatusCode, res.ContentLength)
	}
}

func TestStatusRefusesBadArguments(t *testing.T) {
	svc := newService(t, setup{handle: answers(201, "paid")})
	var none *everonce.Receiver
	for name, build := range map[string]func() (http.Handler, error){
		"no receiver":  func() (http.Handler, error) { return httponce.Status(nil, httponce.Unscoped(), "POST /payments", nil) },
		"nil receiver": func() (http.Handler, error) { return httponce.Status(none, httponce.Unscoped(), "POST /payments", nil) },
		"no principal": func() (http.Handler, error) { return httponce.Status(svc.recv, nil, "POST /payments", nil) },
		"no method":    func() (http.Handler, error) { return httponce.Status(svc.recv, httponce.Unscoped(), "/payments", nil) },
		"small method": func() (http.Handler, error) {
			return httponce.Status(svc.recv, httponce.Unscoped(), "post /payments", nil)
		},
		"no name": func() (http.Handler, error) { return httponce.Status(svc.recv, httponce.Unscoped(), "POST ", nil) },
		"method without keys": func() (http.Handler, error) {
			return httponce.Status(svc.recv, httponce.Unscoped(), "PUT /payments", nil)
		},
		"exempt": func() (http.Handler, error) {
			return httponce.Status(svc.recv, httponce.Unscoped(), "POST /payments", &httponce.Options{Route: httponce.Route{Methods: []string{}}})
		},
		"wrong options": func() (http.Handler, error) {
			return httponce.Status(svc.recv, httponce.Unscoped(), "POST /payments", &httponce.Options{MaxWaiting: -1})
		},
	} {
		if h, err := build(); !errors.Is(err, everonce.ErrInvalidArgument) || h != nil {
			t.Errorf("%s: %v, %v", name, h, err)
		}
	}
}

// The status of any method that takes a key on some route may be asked for: the route may have its own name.
func TestStatusOfAMethodThatTakesKeys(t *testing.T) {
	svc := newService(t, setup{handle: answers(201, "paid")})
	put := httponce.Route{Methods: []string{http.MethodPut}}
	for name, opts := range map[string]*httponce.Options{"the base": {Route: put}, "a route": {Routes: map[string]httponce.Route{"PUT /orders/{id}": put}}} {
		if _, err := httponce.Status(svc.recv, httponce.Unscoped(), "PUT order", opts); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
