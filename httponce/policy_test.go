package httponce_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/httponce"
	"github.com/everonce/everonce/internal/mapdb"
	"github.com/everonce/everonce/store/memstore"
)

func policyOf(t *testing.T, life everonce.Lifetime, opts *httponce.Options) http.Handler {
	t.Helper()
	h, err := httponce.Policy(receiverWith(t, everonce.Options{Lifetime: life}), opts)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func receiverWith(t *testing.T, o everonce.Options) *everonce.Receiver {
	t.Helper()
	recv, err := everonce.NewReceiver(memstore.New(nil), everonce.Refuse, &o)
	if err != nil {
		t.Fatal(err)
	}
	return recv
}

// quoted returns the nth block of code in that language of a page of the documentation.
func quoted(t *testing.T, page, language string, n int) string {
	t.Helper()
	text, err := os.ReadFile("../docs/reference/" + page)
	if err != nil {
		t.Fatal(err)
	}
	blocks := strings.Split(string(text), "```"+language+"\n")
	if len(blocks) < n+2 {
		t.Fatalf("%s has %d blocks of %s", page, len(blocks)-1, language)
	}
	block, _, _ := strings.Cut(blocks[n+1], "```")
	return block
}

// The documented policy is the one that the handler serves.
func TestPolicyIsAsDocumented(t *testing.T) {
	h := policyOf(t, everonce.ForWeb(), &httponce.Options{Routes: map[string]httponce.Route{
		"POST /payments": {
			Required: true, CheckKey: func(string) error { return nil }, KeyRule: "a UUID in lower case", KeyJSON: "/idempotency_key", Lifetime: everonce.ForFinance(), Wait: 2500 * time.Millisecond,
			Compare: httponce.Compare{IgnoreHost: true, Headers: []string{"content-type"}, JSONExcept: []string{"/sentAt"}},
			Save:    httponce.Save{"409": httponce.Released},
		},
	}})
	res := send(h, http.MethodGet, "/idempotency", "")
	if got, want := bodyOf(t, res), quoted(t, "http-policy.md", "json", 0); got != want {
		t.Errorf("it serves\n%s\nand the documentation has\n%s", got, want)
	}
	for name, want := range map[string]string{
		"Content-Type": "application/json", "Cache-Control": "max-age=300",
		"Link": `<https://github.com/everonce/everonce/blob/main/docs/reference/http-policy.md>; rel="describedby"`,
	} {
		if got := res.Header.Get(name); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	if res := send(h, http.MethodGet, "/idempotency", "", "If-None-Match", res.Header.Get("ETag")); res.StatusCode != http.StatusNotModified {
		t.Errorf("with its ETag: %d", res.StatusCode)
	}
	if res := send(h, http.MethodHead, "/idempotency", ""); res.StatusCode != http.StatusOK || bodyOf(t, res) != "" || res.Header.Get("Content-Length") == "" {
		t.Errorf("HEAD: %d %v", res.StatusCode, res.Header)
	}
	if res := send(h, http.MethodPost, "/idempotency", ""); res.StatusCode != http.StatusMethodNotAllowed || res.Header.Get("Allow") != "GET, HEAD" {
		t.Errorf("POST: %d %v", res.StatusCode, res.Header)
	}
}

// A policy says of a route's methods only those that its pattern lets through, and what is in force without options.
func TestPolicyOfRoutes(t *testing.T) {
	h := policyOf(t, everonce.Lifetime{}, &httponce.Options{
		KeyHeader: "X-Request-Key", Marker: "X-Replayed",
		Routes: map[string]httponce.Route{
			"GET /reports":   {Methods: []string{"GET", "HEAD", "POST"}},
			"/anything":      {Methods: []string{"PUT", "POST"}, MaxBody: 5},
			"DELETE /exempt": {Methods: []string{}},
			"POST\t/tab":     {},
		},
	})
	var doc struct {
		Header string
		Marker string `json:"replay_marker"`
		Routes []struct {
			Pattern   string
			Methods   []string
			Retention string
			MaxBody   int64 `json:"max_body_bytes"`
		}
	}
	if err := json.Unmarshal([]byte(bodyOf(t, send(h, http.MethodGet, "/", ""))), &doc); err != nil {
		t.Fatal(err)
	}
	if doc.Header != "X-Request-Key" || doc.Marker != "X-Replayed" || len(doc.Routes) != 5 {
		t.Fatalf("%+v", doc)
	}
	for i, want := range []struct {
		pattern, methods string
		maxBody          int64
	}{
		{"", "PATCH POST", 8 << 20},
		{"/anything", "POST PUT", 5},
		{"DELETE /exempt", "", 8 << 20},
		{"GET /reports", "GET HEAD", 8 << 20},
		{"POST\t/tab", "POST", 8 << 20},
	} {
		r := doc.Routes[i]
		if r.Pattern != want.pattern || strings.Join(r.Methods, " ") != want.methods || r.Methods == nil || r.MaxBody != want.maxBody || r.Retention != "P1D" {
			t.Errorf("%+v, want %+v", r, want)
		}
	}
}

// The policy of a status is the treatment of a key answered with it, in each mode.
func TestPolicyIsWhatHappens(t *testing.T) {
	status := 0
	write := func(w http.ResponseWriter) { w.WriteHeader(status) }
	opts := httponce.Options{Route: httponce.Route{Save: httponce.Save{"409": httponce.Released, "418": httponce.Unknown, "501": httponce.Saved}}}
	for mode, set := range map[string]setup{
		"guarded":       {opts: opts, handle: func(w http.ResponseWriter, _ *http.Request) { write(w) }},
		"transactional": {opts: opts, handleTx: func(w http.ResponseWriter, _ *http.Request, _ *mapdb.Tx) error { write(w); return nil }},
	} {
		svc := newService(t, set)
		var recv everonce.AnyReceiver = svc.recv
		if mode == "transactional" {
			recv = svc.recvTx
		}
		h, err := httponce.Policy(recv, &opts)
		if err != nil {
			t.Fatal(err)
		}
		var doc struct {
			Routes []struct{ Answers map[string]string }
		}
		if err := json.Unmarshal([]byte(bodyOf(t, send(h, http.MethodGet, "/", ""))), &doc); err != nil {
			t.Fatal(err)
		}
		for status = 200; status < 600; status++ {
			key, before := strconv.Itoa(status), svc.ran()
			svc.post(key)
			g, runs := svc.post(key), svc.ran()-before
			said, ok := doc.Routes[0].Answers[key]
			if !ok {
				said = doc.Routes[0].Answers[key[:1]+"xx"]
			}
			is := map[string]bool{
				"saved": runs == 1 && g.status == status && g.mark == "true", "released": runs == 2 && g.status == status && g.mark == "",
				"unknown": runs == 1 && g.problem == "outcome-unknown",
			}
			if !is[said] {
				t.Errorf("%s: %d is said to be %q: called %d times, then it got %+v", mode, status, said, runs, g)
			}
		}
	}
}

// Where all effects are in steps, a status that is said to leave the outcome unknown does so where a step was left
// open; where none was, the key is released. The status alone does not tell, and what is published promises no more.
func TestPolicyOfEffectsInSteps(t *testing.T) {
	for open, want := range map[bool]got{true: {status: 409, problem: "outcome-unknown"}, false: {status: 500}} {
		svc := newService(t, setup{core: everonce.Options{EffectsInSteps: true}, handle: func(w http.ResponseWriter, r *http.Request) {
			a, _ := everonce.AttemptFrom(r.Context())
			_, _ = everonce.Step(r.Context(), a, "mail", func(context.Context) (string, error) {
				if open {
					return "", errors.New("the gateway gave no answer")
				}
				return "sent", nil
			})
			w.WriteHeader(http.StatusInternalServerError)
		}})
		h, err := httponce.Policy(svc.recv, nil)
		if err != nil {
			t.Fatal(err)
		}
		if said := bodyOf(t, send(h, http.MethodGet, "/", "")); !strings.Contains(said, `"5xx": "unknown"`) {
			t.Errorf("it says %s", said)
		}
		svc.post("k")
		if g := svc.post("k"); g.status != want.status || g.problem != want.problem || g.mark != "" {
			t.Errorf("a step left open: %v: a repetition got %+v, want %+v", open, g, want)
		}
	}
}

// A saved answer ends the operation, whatever its steps were: Stripe's rules with steps hide an unknown step.
func TestASavedAnswerEndsOpenStepsToo(t *testing.T) {
	svc := newService(t, setup{
		opts: httponce.Options{Profile: httponce.ProfileStripe}, core: everonce.Options{EffectsInSteps: true},
		handle: func(w http.ResponseWriter, r *http.Request) {
			a, _ := everonce.AttemptFrom(r.Context())
			_, err := everonce.Step(r.Context(), a, "charge", func(context.Context) (string, error) { return "", errors.New("timeout") })
			if err == nil {
				t.Error("the step has ended")
			}
			w.WriteHeader(http.StatusServiceUnavailable)
		},
	})
	svc.post("k")
	if g := svc.post("k"); g.status != http.StatusServiceUnavailable || g.mark != "true" {
		t.Errorf("a repetition got %+v, want the saved 503", g)
	}
}

// Lifetimes are published as ISO 8601 durations and in seconds.
func TestPolicyLifetimes(t *testing.T) {
	for _, c := range []struct {
		retention time.Duration
		iso       string
		seconds   float64
	}{
		{time.Second, "PT1S", 1},
		{1500 * time.Millisecond, "PT1.5S", 1.5},
		{90 * time.Minute, "PT1H30M", 5400},
		{24 * time.Hour, "P1D", 86400},
		{90*24*time.Hour + 3*time.Hour + 4*time.Second, "P90DT3H4S", 7786804},
	} {
		h := policyOf(t, everonce.Lifetime{Retention: c.retention}, nil)
		var doc struct {
			Routes []map[string]any
		}
		if err := json.Unmarshal([]byte(bodyOf(t, send(h, http.MethodGet, "/", ""))), &doc); err != nil {
			t.Fatal(err)
		}
		r := doc.Routes[0]
		if r["retention"] != c.iso || r["retention_seconds"] != c.seconds || r["remember"] != "PT0S" || r["remember_seconds"] != 0.0 {
			t.Errorf("%v is %v, %v; remember %v, %v", c.retention, r["retention"], r["retention_seconds"], r["remember"], r["remember_seconds"])
		}
	}
}

// A route's extra demands on a key are published in its own words, or at least their existence is.
func TestPolicyOfKeys(t *testing.T) {
	check := func(string) error { return errors.New("no") }
	h := policyOf(t, everonce.Lifetime{}, &httponce.Options{Routes: map[string]httponce.Route{
		"/a": {CheckKey: check}, "/b": {CheckKey: check, KeyRule: "a UUID"},
		"/c": {KeyFrom: func(*http.Request, []byte) (string, error) { return "", nil }},
		"/d": {KeyFrom: func(*http.Request, []byte) (string, error) { return "", nil }, CheckKey: check},
	}})
	var doc struct{ Routes []map[string]any }
	if err := json.Unmarshal([]byte(bodyOf(t, send(h, http.MethodGet, "/", ""))), &doc); err != nil {
		t.Fatal(err)
	}
	for i, want := range []any{nil, "each key is checked, and a refusal says why", "a UUID", "it may be in the body", "it may be in the body; each key is checked, and a refusal says why"} {
		if got := doc.Routes[i]["key_rule"]; got != want {
			t.Errorf("%v: %v, want %v", doc.Routes[i]["pattern"], got, want)
		}
	}
}

func TestPolicyRefusesBadOptions(t *testing.T) {
	var none *everonce.Receiver
	for _, recv := range []everonce.AnyReceiver{nil, none} {
		if h, err := httponce.Policy(recv, nil); !errors.Is(err, everonce.ErrInvalidArgument) || h != nil {
			t.Errorf("%v, %v", h, err)
		}
	}
	if _, err := httponce.Policy(receiverWith(t, everonce.Options{}), &httponce.Options{MaxWaiting: -1}); !errors.Is(err, everonce.ErrInvalidArgument) {
		t.Error(err)
	}
}
