package httponce_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/httponce"
	"github.com/everonce/everonce/session"
	"github.com/everonce/everonce/session/memsession"
)

// TestSessionEndingsOverHTTP: the meaning of a handler's answer for its number. A kept answer comes again; after any
// other the number may be used again, for a request that then takes effect.
func TestSessionEndingsOverHTTP(t *testing.T) {
	for body, want := range map[string]struct {
		status         int
		problem, again string // the mark of the repetition
		log            string
	}{
		"201 pay":    {201, "", "true", ""},
		"303 pay":    {303, "", "true", ""},
		"402 pay":    {402, "", "true", ""},
		"refuse pay": {422, "refused", "true", ""},
		"large":      {201, "", "elided", ""},
		"401 pay":    {401, "", "", ""},
		"500 pay":    {500, "", "", ""},
		"notdone":    {200, "", "", ""},
		"error pay":  {503, "not-done", "", "a bug"},
	} {
		t.Run(body, func(t *testing.T) {
			s := newSessions(t, session.Config{}, httponce.Options{})
			mine := s.register(secretA)
			first := s.send(http.MethodPost, s.url, body, number(mine, 1, 0)...)
			again := s.send(http.MethodPost, s.url, body, number(mine, 1, 0, "Origin", "https://shop.test")...)
			if got := strings.Join(again.header.Values("Access-Control-Expose-Headers"), ", "); strings.Count(got, "Idempotency-Session-Request") != 1 || !strings.Contains(got, "Retry-After") {
				t.Errorf("a script of another origin may read %q", got)
			}
			known := "none"
			if want.again != "" {
				known = "kept"
			}
			if a, b := first.header.Get("Idempotency-Session-Outcome"), again.header.Get("Idempotency-Session-Outcome"); a != known || b != known {
				t.Errorf("the outcome is %q, and then %q, want %q", a, b, known)
			}
			if first.status != want.status || first.problem != want.problem || first.mark != "" {
				t.Errorf("first: %d %s %q", first.status, first.problem, first.mark)
			}
			if again.status != want.status || again.problem != want.problem || again.mark != want.again || again.location != first.location {
				t.Errorf("again: %d %s %q %q", again.status, again.problem, again.mark, again.location)
			}
			if want.again == "true" && again.body != first.body || want.again == "elided" && again.body != "" {
				t.Errorf("again, the body is %d bytes, first %d", len(again.body), len(first.body))
			}
			if want.log != "" && !strings.Contains(s.logs.String(), want.log) || strings.Contains(first.body, "bug") {
				t.Errorf("logged was %s", s.logs.String())
			}
			other := s.send(http.MethodPost, s.url, "201 other", number(mine, 1, 0)...)
			if want.again == "" && other.status != 201 || want.again != "" && other.problem != "number-reused" {
				t.Errorf("another request under the number: %+v", other)
			}
		})
	}
}

// A panic, like an error, leaves the number unchanged, and net/http closes the connection.
func TestSessionPanicOverHTTP(t *testing.T) {
	s := newSessions(t, session.Config{}, httponce.Options{})
	mine := s.register(secretA)
	if g, err := s.try(http.MethodPost, s.url, "panic", number(mine, 1, 0)...); err == nil {
		t.Errorf("got %+v", g)
	}
	if told := <-s.served; !told.Panicked {
		t.Errorf("Observe got %+v", told)
	}
	if g := s.send(http.MethodPost, s.url, "201 pay", number(mine, 1, 0)...); g.status != 201 || g.mark != "" {
		t.Errorf("the next attempt got %+v", g)
	}
}

// TestSessionInProgressOverHTTP: a copy that comes while the first one runs is told to come again, and the client that
// has gone gets its answer when it does.
func TestSessionInProgressOverHTTP(t *testing.T) {
	s := newSessions(t, session.Config{}, httponce.Options{})
	mine := s.register(secretA)
	running, skipFailed := make(chan struct{}), make(chan struct{})
	s.during = func(string) { close(running); <-skipFailed }
	ctx, leave := context.WithCancel(t.Context())
	var first sync.WaitGroup
	first.Go(func() {
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url, strings.NewReader("201 pay"))
		if err != nil {
			t.Error(err)
			return
		}
		r.Header.Set("X-Account", "a")
		for i, h := 0, number(mine, 1, 0); i < len(h); i += 2 {
			r.Header.Set(h[i], h[i+1])
		}
		if res, err := http.DefaultClient.Do(r); err == nil {
			res.Body.Close()
			t.Error("the client has not gone")
		}
	})
	<-running
	if g := s.send(http.MethodPost, s.url, "201 pay", number(mine, 1, 0)...); g.status != 409 || g.problem != "session-busy" || g.retryAfter != "1" || g.header.Get("Idempotency-Session-Outcome") != "" {
		t.Errorf("a copy got %+v", g)
	}
	leave()
	first.Wait()
	close(skipFailed)
	for end := time.Now().Add(10 * time.Second); ; {
		g := s.send(http.MethodPost, s.url, "201 pay", number(mine, 1, 0)...)
		if g.status == 409 && time.Now().Before(end) {
			time.Sleep(time.Millisecond)
			continue
		}
		if g.status != 201 || g.mark != "true" || s.of("pay") != 1 {
			t.Errorf("the retry got %+v, after %d effects", g, s.of("pay"))
		}
		return
	}
}

// failing is a host that fails before it applies a command, or loses the answer of its commit.
type failing struct {
	session.Host[*account]
	before, after error
}

func (f *failing) Apply(ctx context.Context, c *session.Command, work session.Work[*account]) (session.Reply, error) {
	if f.before != nil {
		return session.Reply{}, f.before
	}
	a, err := f.Host.Apply(ctx, c, work)
	if err == nil && f.after != nil {
		return session.Reply{}, f.after
	}
	return a, err
}

// TestSessionHostFailsOverHTTP: a failure is never "not a duplicate", and the retry with the same number finds out.
func TestSessionHostFailsOverHTTP(t *testing.T) {
	effects := &account{effects: map[string]int{}}
	inner, err := memsession.New(effects, session.Config{Lease: time.Hour}, nil)
	if err != nil {
		t.Fatal(err)
	}
	host := &failing{Host: inner}
	mux := sessionMux(t, host, &httponce.Options{RetryAfter: 3 * time.Second, Log: slog.New(slog.DiscardHandler)})
	secret := []string{"X-Account", "a", "Idempotency-Session-Secret", secretA}
	register := func() got { return read(t, send(mux, http.MethodPost, "/sessions", "", secret...)) }
	var mine []string
	pay := func() got { return read(t, send(mux, http.MethodPost, "/transfers", "201 pay", number(mine, 1, 0)...)) }

	down, lost := fmt.Errorf("no connection: %w", driver.ErrStore), fmt.Errorf("no answer: %w: %w", everonce.ErrOutcomeUnknown, driver.ErrStore)
	host.before = down
	if g := register(); g.status != 503 || g.problem != "store-unavailable" || g.retryAfter != "3" {
		t.Errorf("a registration without a store: %+v", g)
	}
	host.before, host.after = nil, lost
	if g := register(); g.status != 503 || g.problem != "commit-lost" {
		t.Errorf("a registration whose commit was lost: %+v", g)
	}
	host.after = nil
	g := register()
	if g.header.Get("Idempotency-Session") != "1" {
		t.Errorf("it came again: %+v", g)
	}
	mine = append(secret, "Idempotency-Session", "1")

	host.before = down
	if g := pay(); g.status != 503 || g.problem != "store-unavailable" || g.retryAfter != "3" || effects.of("pay") != 0 || g.header.Get("Idempotency-Session-Outcome") != "none" {
		t.Errorf("without a store: %+v", g)
	}
	host.before, host.after = nil, lost
	if g := pay(); g.status != 503 || g.problem != "commit-lost" || g.retryAfter != "1" || g.body == "pay" || g.header.Get("Idempotency-Session-Outcome") != "" {
		t.Errorf("the commit was lost: %+v", g)
	}
	host.after = nil
	if g := pay(); g.status != 201 || g.mark != "true" || effects.of("pay") != 1 {
		t.Errorf("the retry: %+v, after %d effects", g, effects.of("pay"))
	}
	host.before = fmt.Errorf("held for long: %w", everonce.ErrTxTooLong)
	if g := pay(); g.status != 503 || g.problem != "not-done" {
		t.Errorf("too long: %+v", g)
	}
}

// TestSessionKeptByAnotherHandler: what no handler of this package has kept is not taken for an answer, nor done again.
func TestSessionKeptByAnotherHandler(t *testing.T) {
	effects := &account{effects: map[string]int{}}
	host, err := memsession.New(effects, session.Config{Lease: time.Hour}, nil)
	if err != nil {
		t.Fatal(err)
	}
	foreign := &foreign{host}
	server := httptest.NewServer(sessionMux(t, foreign, &httponce.Options{Log: slog.New(slog.DiscardHandler)}))
	defer server.Close()
	s := &sessions{t: t, account: effects, url: server.URL + "/transfers", at: server.URL + "/sessions"}
	mine := s.register(secretA)
	s.send(http.MethodPost, s.url, "201 pay", number(mine, 1, 0)...)
	if g := s.send(http.MethodPost, s.url, "201 pay", number(mine, 1, 0)...); g.status != 503 || g.problem != "record-unreadable" || s.of("pay") != 1 || g.header.Get("Idempotency-Session-Outcome") != "" {
		t.Errorf("got %+v, after %d effects", g, s.of("pay"))
	}
}

// foreign is a host whose results another program has written.
type foreign struct{ session.Host[*account] }

func (f *foreign) Apply(ctx context.Context, c *session.Command, work session.Work[*account]) (session.Reply, error) {
	return f.Host.Apply(ctx, c, func(ctx context.Context, l *account, payload []byte) ([]byte, error) {
		_, err := work(ctx, l, payload)
		return []byte("done"), err
	})
}
