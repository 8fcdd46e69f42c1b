package httponce_test

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/httponce"
	"github.com/everonce/everonce/internal/mapdb"
)

// squarePayment is a request as Square's SDKs send it: the key is a member of the body, and in no header.
func squarePayment(key string) string {
	return `{"source_id":"cnon:card-nonce-ok","idempotency_key":"` + key + `","amount_money":{"amount":1000,"currency":"USD"},"autocomplete":true}`
}

func fromJSON() httponce.Options {
	return httponce.Options{Route: httponce.Route{KeyJSON: "/idempotency_key"}}
}

// sendJSON sends a body whose type is JSON, with headers beside it.
func (svc *service) sendJSON(body string, header ...string) got {
	svc.t.Helper()
	return svc.sendAs("application/json", body, header...)
}

func (svc *service) sendAs(media, body string, header ...string) got {
	svc.t.Helper()
	return read(svc.t, send(svc, "POST", "/v2/payments", body, append([]string{"Content-Type", media}, header...)...))
}

// A key in the body is a key: it is executed once, in both modes, also where the second copy comes while the first one
// runs; another body under it is refused; and the handler gets the whole body.
func TestKeyInTheBody(t *testing.T) {
	for _, mode := range []string{"guarded", "transactional"} {
		synctest.Test(t, func(t *testing.T) {
			pay := func(w http.ResponseWriter, r *http.Request) {
				if body, err := io.ReadAll(r.Body); err != nil || string(body) != squarePayment("7da7") || r.ContentLength != int64(len(body)) {
					t.Errorf("%s: the handler gets %q, %v", mode, body, err)
				}
				time.Sleep(2 * time.Second)
				answers(200, `{"payment":{"id":"p1"}}`)(w, r)
			}
			s := setup{opts: fromJSON(), handle: pay}
			if mode == "transactional" {
				s.handleTx = func(w http.ResponseWriter, r *http.Request, _ *mapdb.Tx) error {
					pay(w, r)
					return nil
				}
			}
			svc := newService(t, s)
			first := make(chan got)
			go func() { first <- svc.sendJSON(squarePayment("7da7"), "Square-Version", "2026-10-15") }()
			synctest.Wait()
			if g := svc.sendJSON(squarePayment("7da7"), "Square-Version", "2026-10-15"); g.status != 200 || g.mark != "true" {
				t.Errorf("%s: the copy got %+v", mode, g)
			}
			if g := <-first; g.status != 200 || g.mark != "" {
				t.Errorf("%s: the first got %+v", mode, g)
			}
			if g := svc.sendJSON(strings.Replace(squarePayment("7da7"), "1000", "2000", 1)); g.status != 422 || g.problem != "key-reused" {
				t.Errorf("%s: another amount got %+v", mode, g)
			}
			if svc.ran() != 1 {
				t.Errorf("%s: the handler was called %d times", mode, svc.ran())
			}
			if strings.Contains(svc.logs.String(), "7da7") {
				t.Errorf("%s: the log has the key: %s", mode, svc.logs.String())
			}
		})
	}
}

// An invalid key is rejected before anything is claimed, and is not repeated anywhere.
func TestBadKeysInTheBody(t *testing.T) {
	for name, tc := range map[string]struct {
		body   string
		header string
		says   string
	}{
		"a number":             {`{"idempotency_key":4711}`, "", "not a string"},
		"an object":            {`{"idempotency_key":{"secret":1}}`, "", "not a string"},
		"empty":                {`{"idempotency_key":""}`, "", "empty"},
		"too long":             {`{"idempotency_key":"` + strings.Repeat("secret", 50) + `"}`, "", "longer than 255"},
		"a line break":         {`{"idempotency_key":"secret\n"}`, "", "ASCII"},
		"not ASCII":            {`{"idempotency_key":"secrét"}`, "", "ASCII"},
		"twice":                {`{"idempotency_key":"secret","idempotency_key":"b"}`, "", "repeated names"},
		"twice, spelled apart": {`{"idempotency_key":"secret","idempotency\u005fkey":"b"}`, "", "repeated names"},
		"no JSON":              {`{"idempotency_key":"secret"`, "", "not one JSON value"},
		"two values":           {`{"idempotency_key":"secret"}{}`, "", "not one JSON value"},
		"another header":       {`{"idempotency_key":"secret"}`, "secret-2", "differ"},
		"a bad header":         {`{"idempotency_key":"secret"}`, "a,b", "Idempotency-Key: "},
		"a bad body":           {`{"idempotency_key":7}`, "secret", "not a string"},
	} {
		svc := newService(t, setup{opts: fromJSON(), handle: answers(201, "paid")})
		var header []string
		if tc.header != "" {
			header = []string{"Idempotency-Key", tc.header}
		}
		g := svc.sendJSON(tc.body, header...)
		var problem struct{ Detail string }
		if err := json.Unmarshal([]byte(g.body), &problem); err != nil || g.status != 400 || g.problem != "invalid-key" || !strings.Contains(problem.Detail, tc.says) {
			t.Errorf("%s: %+v, want a detail that says %q", name, g, tc.says)
		}
		if strings.Contains(g.body+svc.logs.String(), "secr") || svc.ran() != 0 || svc.last().KeyHash != "" {
			t.Errorf("%s: called %d times, logged %s, answered %s", name, svc.ran(), svc.logs.String(), g.body)
		}
	}
}

// A request without a key in its header and body passes like one without a header, with its body; or its answer says
// where a key may be.
func TestNoKeyInTheBody(t *testing.T) {
	for _, mode := range []string{"guarded", "transactional"} {
		for _, required := range []bool{false, true} {
			for name, tc := range map[string]struct{ body, media string }{
				"no member":            {`{"amount":1}`, "application/json"},
				"null":                 {`{"idempotency_key":null}`, "application/json; charset=utf-8"},
				"deeper":               {`{"payment":{"idempotency_key":"k"}}`, "application/json"},
				"another kind":         {`["idempotency_key"]`, "application/json"},
				"nothing":              {``, "application/json"},
				"another type":         {`idempotency_key=k`, "application/x-www-form-urlencoded"},
				"JSON by another name": {`{"idempotency_key":"k"}`, "text/plain"},
			} {
				opts := fromJSON()
				opts.Required = required
				handle := func(w http.ResponseWriter, r *http.Request) {
					if body, err := io.ReadAll(r.Body); err != nil || string(body) != tc.body {
						t.Errorf("%s, %s: the handler gets %q, %v", mode, name, body, err)
					}
					w.WriteHeader(http.StatusCreated)
				}
				s := setup{opts: opts, handle: handle}
				if mode == "transactional" {
					s.handleTx = func(w http.ResponseWriter, r *http.Request, _ *mapdb.Tx) error {
						handle(w, r)
						return nil
					}
				}
				svc := newService(t, s)
				for range 2 {
					g := svc.sendAs(tc.media, tc.body)
					if required && (g.status != 400 || g.problem != "missing-key" || !strings.Contains(g.body, "/idempotency_key")) || !required && g.status != 201 {
						t.Errorf("%s, %s, required %v: %+v", mode, name, required, g)
					}
				}
				if n := svc.ran(); n != 0 && required || n != 2 && !required {
					t.Errorf("%s, %s, required %v: called %d times", mode, name, required, n)
				}
			}
		}
	}
}

// The same key in header and body is one key; a header alone is one too; and a body that is not JSON is not held back.
func TestKeyInHeaderAndBody(t *testing.T) {
	svc := newService(t, setup{opts: fromJSON(), handle: answers(201, "paid")})
	both := `{"idempotency_key":"k 1"}`
	for i, header := range []string{`"k 1"`, ""} {
		var headers []string
		if header != "" {
			headers = []string{"Idempotency-Key", header}
		}
		if g := svc.sendJSON(both, headers...); g.status != 201 || (g.mark == "true") != (i == 1) {
			t.Errorf("%q: %+v", header, g)
		}
	}
	for i := range 2 {
		if g := svc.sendJSON("{}", "Idempotency-Key", "k2"); g.status != 201 || (g.mark == "true") != (i == 1) {
			t.Errorf("a header alone: %+v", g)
		}
	}
	passed := false
	streams := newService(t, setup{opts: fromJSON(), handle: func(http.ResponseWriter, *http.Request) { passed = true }})
	r := httptest.NewRequest(http.MethodPost, "/", neverRead{t})
	r.Header.Set("Content-Type", "application/octet-stream")
	streams.ServeHTTP(httptest.NewRecorder(), r)
	if !passed {
		t.Error("it did not pass")
	}
}

// neverRead is a body that must not be read.
type neverRead struct{ t *testing.T }

func (n neverRead) Read([]byte) (int, error) {
	n.t.Error("a body that cannot have a key was read")
	return 0, io.EOF
}

// KeyFrom finds a key anywhere: here in a form.
func TestKeyFrom(t *testing.T) {
	opts := httponce.Options{Route: httponce.Route{KeyFrom: func(r *http.Request, body []byte) (string, error) {
		if r.Header.Get("Content-Type") != "application/x-www-form-urlencoded" {
			return "", nil
		}
		form, err := url.ParseQuery(string(body))
		if err != nil {
			return "", errors.New("the form cannot be read")
		}
		return form.Get("MessageSid"), nil
	}}}
	svc := newService(t, setup{opts: opts, handle: answers(201, "received")})
	const form = "application/x-www-form-urlencoded"
	for i := range 2 {
		if g := svc.sendAs(form, "MessageSid=SM1&Body=hi"); g.status != 201 || (g.mark == "true") != (i == 1) {
			t.Errorf("a form: %+v", g)
		}
	}
	if g := svc.sendAs(form, "MessageSid=%zz"); g.status != 400 || g.problem != "invalid-key" || !strings.Contains(g.body, "the form cannot be read.") {
		t.Errorf("a form that cannot be read: %+v", g)
	}
	if g := svc.sendAs(form, "MessageSid="+strings.Repeat("x", 256)); g.status != 400 || g.problem != "invalid-key" {
		t.Errorf("a key that is too long: %+v", g)
	}
	if g := svc.sendJSON("{}"); g.status != 201 || svc.ran() != 2 {
		t.Errorf("a body without a key: %+v, %d calls", g, svc.ran())
	}
}

// Whatever says that a body is JSON, a key in it is found, or the request is refused: none is executed twice.
func TestKeyInABodyThatIsSaidToBeJSON(t *testing.T) {
	for media, want := range map[string]int{
		"application/json; charset=utf8": 201, "application/json; charset=iso-8859-1": 201, "application/json; charset": 201,
		"application/json;charset=utf-8;charset=utf-8": 201, "application/json, application/json": 201, "text/json": 201, "application/x-json": 201,
		"application/json; charset=utf-16": 400,
	} {
		body := `{"idempotency_key":"k"}`
		if want == 400 {
			body = strings.ReplaceAll(body, "", "\x00")[1:]
		}
		svc := newService(t, setup{opts: fromJSON(), handle: answers(201, "paid")})
		for i := range 2 {
			if g := svc.sendAs(media, body); g.status != want || want == 201 && (g.mark == "true") != (i == 1) || want == 400 && g.problem != "invalid-key" {
				t.Errorf("%s: %+v", media, g)
			}
		}
		if n := svc.ran(); n > 1 {
			t.Errorf("%s: called %d times", media, n)
		}
	}
	svc := newService(t, setup{opts: fromJSON(), handle: answers(201, "paid")})
	r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(`{"idempotency_key":"k"}`))
	r.Header["Content-Type"] = []string{"application/json", "application/json"}
	w := httptest.NewRecorder()
	if svc.ServeHTTP(w, r); w.Code != 201 || svc.last().Outcome != everonce.Executed {
		t.Errorf("with its type twice: %d", w.Code)
	}
	lines := newService(t, setup{opts: fromJSON(), handle: answers(201, "")})
	if g := lines.sendAs("application/x-ndjson; charset=utf-8", "{}\n{}\n"); g.status != 201 {
		t.Errorf("a sequence: %+v", g)
	}
}

// A compressed body is not searched: the key in the header counts, or the answer says what to do.
func TestKeyOfACompressedBody(t *testing.T) {
	svc := newService(t, setup{opts: fromJSON(), handle: answers(201, "paid")})
	for i := range 2 {
		if g := svc.sendJSON("compressed", "Content-Encoding", "gzip", "Idempotency-Key", "k"); g.status != 201 || (g.mark == "true") != (i == 1) {
			t.Errorf("with a key in the header: %+v", g)
		}
	}
	if g := svc.sendJSON("compressed", "Content-Encoding", "gzip"); g.status != 400 || g.problem != "invalid-key" || !strings.Contains(g.body, "the body is compressed") {
		t.Errorf("without one: %+v", g)
	}
	if g := svc.sendJSON(`{"idempotency_key":"j"}`, "Content-Encoding", "identity"); g.status != 201 || svc.ran() != 2 {
		t.Errorf("not compressed: %+v", g)
	}
}

// KeyFrom may read the request's body and parse its form: the handler has its own.
func TestKeyFromParsesAForm(t *testing.T) {
	opts := httponce.Options{Route: httponce.Route{KeyFrom: func(r *http.Request, _ []byte) (string, error) { return r.PostFormValue("MessageSid"), nil }}}
	svc := newService(t, setup{opts: opts, handle: func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, r.PostFormValue("Body")) }})
	for i := range 2 {
		if g := svc.sendAs("application/x-www-form-urlencoded", "MessageSid=SM1&Body=hi"); g.status != 200 || g.body != "hi" || (g.mark == "true") != (i == 1) {
			t.Errorf("%+v", g)
		}
	}
}

// Of large bodies KeyFrom gets only as many at once as there are processors, as the search for KeyJSON does: each is
// whole in memory.
func TestKeyFromGetsFewLargeBodiesAtATime(t *testing.T) {
	most := int64(runtime.GOMAXPROCS(0))
	var inside atomic.Int64
	tooMany := make(chan struct{})
	opts := httponce.Options{Route: httponce.Route{KeyFrom: func(*http.Request, []byte) (string, error) {
		defer inside.Add(-1)
		if inside.Add(1) == most+1 {
			close(tooMany)
		}
		select {
		case <-tooMany:
		case <-time.After(100 * time.Millisecond):
		}
		return "", nil
	}}}
	svc := newService(t, setup{opts: opts, handle: answers(201, "")})
	var all sync.WaitGroup
	for range most + 1 {
		all.Go(func() { svc.sendAs("text/plain", medium) })
	}
	all.Wait()
	select {
	case <-tooMany:
		t.Errorf("more than %d at once", most)
	default:
	}
}

// A sender who is not known sends no body for nothing, where it is known beforehand that one is needed.
func TestTheSenderIsAskedForBeforeTheBodyIsRead(t *testing.T) {
	for _, required := range []bool{false, true} {
		opts := fromJSON()
		opts.Required = required
		opts.Principal = func(*http.Request) (string, error) { return "", errors.New("unknown") }
		svc := newService(t, setup{opts: opts, handle: answers(201, "")})
		r := httptest.NewRequest(http.MethodPost, "/", neverRead{t})
		r.Header.Set("Content-Type", "application/json")
		if !required {
			r.Header.Set("Idempotency-Key", "k")
		}
		w := httptest.NewRecorder()
		if svc.ServeHTTP(w, r); w.Code != http.StatusForbidden {
			t.Errorf("required %v: %d", required, w.Code)
		}
	}
}

// The limits of a body hold where it is read to look for a key, and CheckKey is asked about that one too.
func TestLimitsOfABodyWithAKey(t *testing.T) {
	opts := fromJSON()
	opts.MaxBody = 40
	opts.CheckKey = func(key string) error { return errors.New("not like " + key) }
	svc := newService(t, setup{opts: opts, handle: answers(201, "paid")})
	if g := svc.sendJSON(`{"idempotency_key":"k","more":"` + strings.Repeat("x", 40) + `"}`); g.status != 413 {
		t.Errorf("a large body: %+v", g)
	}
	if g := svc.sendJSON(`{"idempotency_key":"secret"}`); g.status != 400 || g.problem != "invalid-key" || strings.Contains(g.body, "secret") {
		t.Errorf("a key that CheckKey refuses: %+v", g)
	}
	if svc.ran() != 0 || svc.last().Outcome == everonce.Executed {
		t.Errorf("called %d times", svc.ran())
	}
}
