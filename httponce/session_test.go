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
	url, at string // the handler's, and that of the sessions
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
	res, err := http.DefaultClient.Do(r)
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

// A request of a session takes effect once, and comes again as it was.
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
			t.Errorf("told: %+v", told)
		}
	}
}
