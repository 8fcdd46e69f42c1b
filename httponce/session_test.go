package httponce_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/httponce"
	"github.com/everonce/everonce/session"
	"github.com/everonce/everonce/session/memsession"
)

// account is what the handlers act on. It has no transactions, so they act last.
type account struct {
	mu      sync.Mutex
	effects map[string]int
	during  func(text string) // is called by a handler, before its effect
}

func (l *account) add(text string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.effects[text]++
}

func (l *account) of(text string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.effects[text]
}

const (
	secretA = "YWFhYWFhYWFhYWFhYWFhYQ" // of 16 bytes
	secretB = "YmJiYmJiYmJiYmJiYmJiYg"
)

// sessions is a service with sessions, over TCP.
type sessions struct {
	t *testing.T
	*account
	url, at string // the handler's, and the sessions'
	logs    *bytes.Buffer
	served  chan httponce.Served
}

func newSessions(t *testing.T, config session.Config, opts httponce.Options) *sessions {
	t.Helper()
	s := &sessions{t: t, account: &account{effects: map[string]int{}}, logs: new(bytes.Buffer), served: make(chan httponce.Served, 1000)}
	opts.Log = slog.New(slog.NewTextHandler(s.logs, nil))
	opts.Observe = func(_ context.Context, told httponce.Served) { s.served <- told }
	if config.Lease == 0 {
		config.Lease = time.Hour
	}
	host, err := memsession.New(s.account, config, &memsession.Options{Wait: -1})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(sessionMux(t, host, &opts))
	t.Cleanup(server.Close)
	s.url, s.at = server.URL+"/transfers", server.URL+"/sessions"
	return s
}

func sessionMux(t *testing.T, host session.Host[*account], opts *httponce.Options) http.Handler {
	t.Helper()
	sender := func(r *http.Request) (string, error) { return r.Header.Get("X-Account"), nil }
	transfer, err := httponce.HandleSession(host, sender, handleTransfer, opts)
	if err != nil {
		t.Fatal(err)
	}
	register, err := httponce.Sessions(host, sender, opts)
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.Handle("/transfers", transfer)
	mux.Handle("/sessions", register)
	return mux
}

// handleTransfer does what the body says: a status and a text, or "error", "panic".
func handleTransfer(w http.ResponseWriter, r *http.Request, l *account) error {
	b, err := io.ReadAll(r.Body)
	if err != nil {
		return err
	}
	if r.Header.Get("Idempotency-Session-Secret") != "" {
		return errors.New("the handler sees the secret")
	}
	how, text, _ := strings.Cut(string(b), " ")
	if l.during != nil {
		l.during(text)
	}
	switch how {
	case "error":
		return errors.New("a bug")
	case "panic":
		panic(http.ErrAbortHandler)
	case "notdone":
		httponce.NotDone(w)
		return nil
	case "refuse":
		return everonce.Permanent("no_funds", errors.New("the balance is too low"), nil)
	case "large":
		text = strings.Repeat("x", 70<<10)
	}
	status, err := strconv.Atoi(how)
	if err != nil {
		status = http.StatusCreated
	}
	l.add(text)
	w.Header().Set("Location", "/transfers/1")
	w.WriteHeader(status)
	fmt.Fprint(w, text)
	return nil
}

// send sends a request of account a, unless the headers say another one.
func (s *sessions) send(method, url, body string, headers ...string) got {
	s.t.Helper()
	g, err := s.try(method, url, body, headers...)
	if err != nil {
		s.t.Fatal(err)
	}
	return g
}

func (s *sessions) try(method, url, body string, headers ...string) (got, error) {
	r, err := http.NewRequestWithContext(s.t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		return got{}, err
	}
	r.Header.Set("X-Account", "a")
	for i := 0; i < len(headers); i += 2 {
		r.Header[headers[i]] = []string{headers[i+1]}
	}
	client := http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	res, err := client.Do(r)
	if err != nil {
		return got{}, err
	}
	defer res.Body.Close()
	return read(s.t, res), nil
}

// register begins a session, and returns the headers that its requests have.
func (s *sessions) register(secret string, more ...string) []string {
	s.t.Helper()
	g := s.send(http.MethodPost, s.at, "", append([]string{"Idempotency-Session-Secret", `"` + secret + `"`}, more...)...)
	if g.status != http.StatusCreated || g.header.Get("Idempotency-Session") == "" {
		s.t.Fatalf("the registration got %+v", g)
	}
	return []string{"Idempotency-Session", g.header.Get("Idempotency-Session"), "Idempotency-Session-Secret", `"` + secret + `"`}
}

// number adds a number and a mark to the headers of a session.
func number(of []string, number, mark int, more ...string) []string {
	h := append(of[:len(of):len(of)], "Idempotency-Session-Request", strconv.Itoa(number), "Idempotency-Session-Mark", strconv.Itoa(mark))
	return append(h, more...)
}

// A request of a session takes effect once, and its answer comes again unchanged.
func TestSessionOverHTTP(t *testing.T) {
	s := newSessions(t, session.Config{}, httponce.Options{})
	mine := s.register(secretA)
	if again := s.register(secretA); again[1] != mine[1] {
		t.Errorf("the registration came again, and began another session: %s, %s", mine[1], again[1])
	}
	for i, mark := range []string{"", "true", "true"} {
		g := s.send(http.MethodPost, s.url, "201 pay", number(mine, 1, 0)...)
		if g.status != 201 || g.body != "pay" || g.mark != mark || g.location != "/transfers/1" || s.of("pay") != 1 {
			t.Errorf("time %d: %+v, after %d effects", i+1, g, s.of("pay"))
		}
		if told := <-s.served; told.Status != 201 || told.Outcome == 0 {
			t.Errorf("Observe got %+v", told)
		}
	}
}

// TestSessionRulesOverHTTP: the rules of a session by their numbers, and what they are answered. A refusal has no
// effect.
func TestSessionRulesOverHTTP(t *testing.T) {
	s := newSessions(t, session.Config{Window: 4, MaxBytes: 6000}, httponce.Options{})
	mine := s.register(secretA, "Idempotency-Session-Epoch", "7")
	with := func(n, mark int, more ...string) []string {
		return number(mine, n, mark, append([]string{"Idempotency-Session-Epoch", "7"}, more...)...)
	}
	ended, ordered := s.register(secretB), s.register("Y2NjY2NjY2NjY2NjY2NjYw", "Idempotency-Session-Ordered", "?1")
	if g := s.send(http.MethodDelete, s.at, "", ended...); g.status != http.StatusNoContent {
		t.Fatalf("the end got %+v", g)
	}
	other := func(h []string, name, value string) []string {
		h = append([]string(nil), h...)
		for i := range h {
			if h[i] == name {
				h[i+1] = value
				return h
			}
		}
		return append(h, name, value)
	}
	quote := func(secret string) string { return `"` + secret + `"` }
	for _, c := range []struct {
		rule       string
		headers    []string
		status     int
		problem    string
		mark       string
		retryAfter string
	}{
		{"1: the session has ended", number(ended, 1, 0), 410, "session-expired", "", ""},
		{"2: unknown session", other(with(1, 0), "Idempotency-Session", "99"), 404, "session-unknown", "", ""},
		{"2: another sender", with(1, 0, "X-Account", "b"), 404, "session-unknown", "", ""},
		{"2: another secret", other(with(1, 0), "Idempotency-Session-Secret", quote(secretB)), 404, "session-unknown", "", ""},
		{"3: an earlier run", other(with(1, 0), "Idempotency-Session-Epoch", "6"), 403, "session-fenced", "", ""},
		{"4: the mark is the number", with(1, 1), 400, "invalid-mark", "", ""},
		{"10: executed", with(2, 0), 201, "", "", ""},
		{"6: again", with(2, 0), 201, "", "true", ""},
		{"6: again, and the mark has moved", with(2, 1), 201, "", "true", ""},
		{"5: below the mark", with(1, 0), 410, "request-stale", "", ""},
		{"4: a lower mark is ignored", with(2, 0), 201, "", "true", ""},
		{"8: above the window", with(6, 0), 429, "window-full", "", "1"},
		{"8: it ends there", with(5, 0), 201, "", "", ""},
		{"9: not the next", number(ordered, 2, 0), 409, "number-gap", "", "1"},
		{"9: the next", number(ordered, 1, 0), 201, "", "", ""},
		{"no session", nil, 400, "missing-session", "", ""},
		{"no sender", with(3, 1, "X-Account", ""), 403, "no-principal", "", ""},
		{"a key too", with(3, 1, "Idempotency-Key", "k"), 400, "invalid-session", "", ""},
		{"the number 0", with(0, 0), 400, "invalid-session", "", ""},
		{"no number", mine, 400, "invalid-session", "", ""},
		{"no secret", []string{"Idempotency-Session", "1", "Idempotency-Session-Request", "1"}, 400, "invalid-session", "", ""},
		{"a short secret", other(with(3, 1), "Idempotency-Session-Secret", "YWFh"), 400, "invalid-session", "", ""},
		{"a padded secret", other(with(3, 1), "Idempotency-Session-Secret", quote(secretA+"==")), 400, "invalid-session", "", ""},
		{"a negative number", other(with(3, 1), "Idempotency-Session-Request", "-1"), 400, "invalid-session", "", ""},
		{"a decimal", other(with(3, 1), "Idempotency-Session-Request", "3.0"), 400, "invalid-session", "", ""},
		{"a number out of range", other(with(3, 1), "Idempotency-Session-Request", "1000000000000000"), 400, "invalid-session", "", ""},
		{"a list", other(with(3, 1), "Idempotency-Session-Mark", "1, 2"), 400, "invalid-session", "", ""},
		{"a long header", other(with(3, 1), "Idempotency-Session-Epoch", strings.Repeat("7", 10_000)), 400, "invalid-session", "", ""},
	} {
		before := s.of("pay")
		g := s.send(http.MethodPost, s.url, "201 pay", c.headers...)
		if g.status != c.status || g.problem != c.problem || g.mark != c.mark || g.retryAfter != c.retryAfter {
			t.Errorf("%s: got %d %s, marked %q, Retry-After %q", c.rule, g.status, g.problem, g.mark, g.retryAfter)
		}
		known := map[int]string{201: "kept", 429: "none", 409: "none"}[c.status]
		if c.problem == "invalid-mark" {
			known = "none"
		}
		if got := g.header.Get("Idempotency-Session-Outcome"); got != known {
			t.Errorf("%s: the outcome is %q, want %q", c.rule, got, known)
		}
		if executed := s.of("pay") - before; (executed == 1) != (c.status == 201 && c.mark == "") || executed > 1 {
			t.Errorf("%s: it had %d effects", c.rule, executed)
		}
		if next := g.header.Get("Idempotency-Session-Next"); (next == "1") != (c.problem == "number-gap") {
			t.Errorf("%s: the next number is %q", c.rule, next)
		}
		if strings.Contains(g.body, secretA) || strings.Contains(fmt.Sprint(g.header), secretA) {
			t.Errorf("%s: the answer has the secret", c.rule)
		}
	}
	if g := s.send(http.MethodPost, s.url, "201 another", with(5, 0)...); g.status != 422 || g.problem != "number-reused" || s.of("another") != 0 {
		t.Errorf("6: another request under the number got %+v", g)
	}
	twice, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	twice.Header = http.Header{"X-Account": {"a"}, "Idempotency-Session-Request": {"3", "3"}}
	for i := 0; i < len(mine); i += 2 {
		twice.Header[mine[i]] = []string{mine[i+1]}
	}
	res, err := http.DefaultClient.Do(twice)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if g := read(t, res); g.problem != "invalid-session" {
		t.Errorf("a repeated header: %+v", g)
	}
	if strings.Contains(s.logs.String(), secretA) {
		t.Error("the log has the secret")
	}
}

// TestSessionsEndpoint: registrations count by sender, ends and renewals may be repeated, and only the sender's own
// work.
func TestSessionsEndpoint(t *testing.T) {
	s := newSessions(t, session.Config{PerPrincipal: 1, MaxSessions: 2, Window: 4}, httponce.Options{RetryAfter: 7 * time.Second})
	mine := s.register(secretA)
	quoted := func(secret string) []string { return []string{"Idempotency-Session-Secret", `"` + secret + `"`} }
	register := func(secret, account string) got {
		return s.send(http.MethodPost, s.at, "", append(quoted(secret), "X-Account", account)...)
	}
	if g := register(secretA, "a"); g.header.Get("Idempotency-Session-Lease") != "3600" || g.header.Get("Idempotency-Session-Window") != "4" || g.header.Get("Cache-Control") != "no-store" {
		t.Errorf("the registration got %+v", g)
	}
	if g := s.send(http.MethodPost, s.at, "", append(quoted(secretA), "Origin", "https://shop.test")...); !strings.Contains(g.header.Get("Access-Control-Expose-Headers"), "Idempotency-Session, ") {
		t.Errorf("a script of another origin got %+v", g)
	}
	if g := register(secretB, "a"); g.status != 429 || g.problem != "session-quota" || g.retryAfter != "7" {
		t.Errorf("a second session of the sender: %+v", g)
	}
	if g := register(secretA, "b"); g.status != 201 || g.header.Get("Idempotency-Session") == mine[1] {
		t.Errorf("another sender with the same secret: %+v", g)
	}
	if g := register(secretB, "c"); g.status != 503 || g.problem != "sessions-full" || g.retryAfter != "7" {
		t.Errorf("one more than there may be: %+v", g)
	}
	for name, c := range map[string]struct {
		method  string
		headers []string
		status  int
		problem string
	}{
		"a renewal":               {http.MethodPut, append(mine, "Idempotency-Session-Mark", "3"), 204, ""},
		"a mark far above":        {http.MethodPut, append(mine, "Idempotency-Session-Mark", "9"), 400, "invalid-mark"},
		"another's renewal":       {http.MethodPut, append(mine, "X-Account", "b"), 404, "session-unknown"},
		"another's end":           {http.MethodDelete, append(mine, "X-Account", "b"), 404, "session-unknown"},
		"a renewal without an ID": {http.MethodPut, quoted(secretA), 400, "invalid-session"},
		"without a secret":        {http.MethodPost, nil, 400, "invalid-session"},
		"not ordered any more":    {http.MethodPost, append(quoted(secretA), "Idempotency-Session-Ordered", "?1"), 400, "invalid-session"},
		"no boolean":              {http.MethodPost, append(quoted(secretA), "Idempotency-Session-Ordered", "1"), 400, "invalid-session"},
		"no sender":               {http.MethodPost, append(quoted(secretA), "X-Account", ""), 403, "no-principal"},
		"a GET":                   {http.MethodGet, mine, 405, ""},
	} {
		if g := s.send(c.method, s.at, "", c.headers...); g.status != c.status || g.problem != c.problem {
			t.Errorf("%s: got %d %s", name, g.status, g.problem)
		}
	}
	for range 2 {
		if g := s.send(http.MethodDelete, s.at, "", mine...); g.status != 204 {
			t.Errorf("the end got %+v", g)
		}
	}
	if g := register(secretB, "a"); g.status != 201 {
		t.Errorf("after the end there is no room: %+v", g)
	}
}

// lockedHost renews no session, as a database does while a request is executed.
type lockedHost struct{ session.Host[*account] }

func (h lockedHost) Apply(ctx context.Context, c *session.Command, work session.Work[*account]) (session.Reply, error) {
	if c.Op == session.KeepAlive {
		return session.Reply{Beats: []session.Refusal{session.ErrInProgress}}, nil
	}
	return h.Host.Apply(ctx, c, work)
}

// TestSessionThatIsNotRenewedOverHTTP: the answer says so, and when to ask again.
func TestSessionThatIsNotRenewedOverHTTP(t *testing.T) {
	host, err := memsession.New(&account{effects: map[string]int{}}, session.Config{Lease: time.Minute}, nil)
	if err != nil {
		t.Fatal(err)
	}
	g := read(t, send(sessionMux(t, lockedHost{host}, nil), http.MethodPut, "/sessions", "", "X-Account", "a", "Idempotency-Session-Secret", secretA, "Idempotency-Session", "1"))
	if g.status != http.StatusConflict || g.problem != "session-busy" || g.retryAfter != "1" {
		t.Errorf("got %+v", g)
	}
}

// TestSessionExpiresOverHTTP: without renewals, at the end of its lease.
func TestSessionExpiresOverHTTP(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		host, err := memsession.New(&account{effects: map[string]int{}}, session.Config{Lease: 1500 * time.Millisecond}, nil)
		if err != nil {
			t.Fatal(err)
		}
		mux := sessionMux(t, host, nil)
		secret := []string{"X-Account", "a", "Idempotency-Session-Secret", secretA}
		g := read(t, send(mux, http.MethodPost, "/sessions", "", secret...))
		if g.header.Get("Idempotency-Session-Lease") != "1.5" {
			t.Errorf("the registration got %+v", g)
		}
		mine := append(secret, "Idempotency-Session", g.header.Get("Idempotency-Session"))
		for i, c := range []struct {
			method, target string
			status         int
		}{{http.MethodPut, "/sessions", 204}, {http.MethodPost, "/transfers", 201}, {http.MethodPut, "/sessions", 204}} {
			time.Sleep(time.Second)
			if g := read(t, send(mux, c.method, c.target, "201 pay", number(mine, 1, 0)...)); g.status != c.status {
				t.Errorf("second %d: %+v", i, g)
			}
		}
		time.Sleep(1500 * time.Millisecond)
		if g := read(t, send(mux, http.MethodPost, "/transfers", "201 pay", number(mine, 2, 0)...)); g.problem != "session-expired" {
			t.Errorf("after the lease: %+v", g)
		}
	})
}

// TestHandleSessionRefusesWhatHasNoMeaning, where the handler is made.
func TestHandleSessionRefusesWhatHasNoMeaning(t *testing.T) {
	host, err := memsession.New(&account{}, session.Config{Lease: time.Hour}, nil)
	if err != nil {
		t.Fatal(err)
	}
	small, err := memsession.New(&account{}, session.Config{Lease: time.Hour, MaxResult: 4095}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, opts := range map[string]*httponce.Options{
		"EchoKey": {EchoKey: true}, "MaxWaiting": {MaxWaiting: 1}, "MaxStillRunning": {MaxStillRunning: 1},
		"CheckKey":     {Route: httponce.Route{CheckKey: func(string) error { return nil }}},
		"KeyJSON":      {Route: httponce.Route{KeyJSON: "/key"}},
		"KeyFrom":      {Route: httponce.Route{KeyFrom: func(*http.Request, []byte) (string, error) { return "", nil }}},
		"Lifetime":     {Route: httponce.Route{Lifetime: everonce.Lifetime{Retention: time.Hour, Remember: time.Hour}}},
		"Lease":        {Route: httponce.Route{Lease: time.Minute}},
		"Wait":         {Route: httponce.Route{Wait: time.Second}},
		"Policy":       {Route: httponce.Route{Policy: everonce.Refuse}},
		"AnswerWithin": {Route: httponce.Route{AnswerWithin: time.Second}},
		"FailOpen":     {Route: httponce.Route{FailOpen: true}},
		"Save of 2xx":  {Route: httponce.Route{Save: httponce.Save{"303": httponce.Released}}},
		"the session's": {Route: httponce.Route{Compare: httponce.Compare{Headers: []string{
			"idempotency-session-secret",
		}}}},
		`"POST /transfers"`: {Routes: map[string]httponce.Route{"POST /transfers": {FailOpen: true}}},
	} {
		h, err := httponce.HandleSession(host, httponce.Unscoped(), handleTransfer, opts)
		if h != nil || !errors.Is(err, everonce.ErrInvalidArgument) || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, build := range map[string]func() (http.Handler, error){
		"host": func() (http.Handler, error) {
			return httponce.HandleSession(nil, httponce.Unscoped(), handleTransfer, nil)
		},
		"principal": func() (http.Handler, error) { return httponce.HandleSession(host, nil, handleTransfer, nil) },
		"handler":   func() (http.Handler, error) { return httponce.HandleSession(host, httponce.Unscoped(), nil, nil) },
		"small": func() (http.Handler, error) {
			return httponce.HandleSession(small, httponce.Unscoped(), handleTransfer, nil)
		},
		"sessions": func() (http.Handler, error) { return httponce.Sessions[*account](nil, httponce.Unscoped(), nil) },
		"options": func() (http.Handler, error) {
			return httponce.Sessions(host, httponce.Unscoped(), &httponce.Options{RetryAfter: -1})
		},
	} {
		if h, err := build(); h != nil || !errors.Is(err, everonce.ErrInvalidArgument) {
			t.Errorf("%s: %v, %v", name, h, err)
		}
	}
}
