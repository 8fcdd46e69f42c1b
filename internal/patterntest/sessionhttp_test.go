package patterntest

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/everonce/everonce/httponce"
	"github.com/everonce/everonce/httponce/client"
	"github.com/everonce/everonce/session"
	"github.com/everonce/everonce/session/sqlsession"
)

// sessionService is an HTTP service whose requests have one effect in the database: that their body says.
func sessionService[Tx any](store *sqlsession.Store[Tx], exec func(context.Context, Tx, string, ...any) error, written func()) (http.Handler, error) {
	opts := &httponce.Options{Log: slog.New(slog.DiscardHandler)}
	pay, err := httponce.HandleSession(store, httponce.Unscoped(), func(w http.ResponseWriter, r *http.Request, tx Tx) error {
		text, err := io.ReadAll(r.Body)
		if err != nil {
			return err
		}
		if err := exec(r.Context(), tx, "INSERT INTO effects (name) VALUES ($1)", string(text)); err != nil {
			return err
		}
		written()
		switch how, _, _ := strings.Cut(string(text), " "); how {
		case "error":
			return errors.New("a bug")
		case "refused":
			w.WriteHeader(http.StatusPaymentRequired)
		case "large":
			w.Header().Set("Location", "/payments/1")
			w.WriteHeader(http.StatusCreated)
			text = []byte(strings.Repeat("x", 10_000))
		default:
			w.WriteHeader(http.StatusCreated)
		}
		_, err = w.Write(text)
		return err
	}, opts)
	if err != nil {
		return nil, err
	}
	register, err := httponce.Sessions(store, httponce.Unscoped(), opts)
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.Handle("/pay", pay)
	mux.Handle("/sessions", register)
	return mux, nil
}

func TestSessionCommitsOverHTTP(t *testing.T) {
	onAll(t, testSessionCommitsOverHTTP[pgx.Tx], testSessionCommitsOverHTTP[*sql.Tx])
}

// Effect and answer are one commit: an answer below 400 has one effect and is replayed from the row unchanged; a
// refused request has no effect, and is refused again; after an error nothing is left, and the number is unused.
func testSessionCommitsOverHTTP[Tx any](t *testing.T, h *handle[Tx]) {
	s := newSessions(t, h, session.Config{MaxResult: 5000}, nil)
	service, err := sessionService(s.Store, h.exec, func() {})
	must(t, err)
	server := httptest.NewServer(service)
	t.Cleanup(server.Close)
	header := http.Header{"Idempotency-Session-Secret": {"YWFhYWFhYWFhYWFhYWFhYQ"}}
	send := func(path, body string) (*http.Response, string) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL+path, strings.NewReader(body))
		must(t, err)
		r.Header = header
		res, err := http.DefaultClient.Do(r)
		must(t, err)
		defer res.Body.Close()
		text, err := io.ReadAll(res.Body)
		must(t, err)
		return res, string(text)
	}
	res, _ := send("/sessions", "")
	header.Set("Idempotency-Session", res.Header.Get("Idempotency-Session"))
	for i, c := range []struct {
		body    string
		status  int
		mark    string // of the repetition
		effects int    // of both
	}{
		{"paid", 201, "true", 1}, {"refused", 402, "true", 0}, {"error", 503, "", 0}, {"large", 201, "elided", 1},
	} {
		header.Set("Idempotency-Session-Request", fmt.Sprint(i+1))
		first, text := send("/pay", c.body)
		again, body := send("/pay", c.body)
		if first.StatusCode != c.status || again.StatusCode != c.status || again.Header.Get("Idempotent-Replayed") != c.mark || first.Header.Get("Location") != again.Header.Get("Location") {
			t.Errorf("%s: %d, and then %d %v", c.body, first.StatusCode, again.StatusCode, again.Header)
		}
		if c.mark == "true" && body != text || c.mark == "elided" && body != "" {
			t.Errorf("%s: %d bytes, and then %d", c.body, len(text), len(body))
		}
		if n := s.effects(t, c.body); n != c.effects {
			t.Errorf("%s: %d effects", c.body, n)
		}
	}
}

func TestSessionPipelinedOverHTTP(t *testing.T) {
	onAll(t, testSessionPipelinedOverHTTP[pgx.Tx], testSessionPipelinedOverHTTP[*sql.Tx])
}

// 32 requests of one session at a time, more than its window has: each takes effect once, and in the end the mark has
// passed all answers but a window's.
func testSessionPipelinedOverHTTP[Tx any](t *testing.T, h *handle[Tx]) {
	const window = 8
	s := newSessions(t, h, session.Config{Window: window}, nil)
	service, err := sessionService(s.Store, h.exec, func() {})
	must(t, err)
	server := httptest.NewServer(service)
	t.Cleanup(server.Close)
	one := sessionAt(t, server.URL, server.Client().Transport, 100)
	lanes(t, 32, 2, func(text string) error { return payOver(t.Context(), one, server.URL, text) })
	if n := h.number(t, "SELECT count(*) FROM effects"); n != 32*2 {
		t.Errorf("%d effects", n)
	}
	if n := h.number(t, "SELECT count(*) FROM everonce_session_answer"); n > window {
		t.Errorf("%d answers are kept", n)
	}
	must(t, one.Close(t.Context()))
	if n := h.number(t, "SELECT count(*) FROM everonce_session"); n != 0 {
		t.Errorf("%d sessions are left", n)
	}
}

// sessionAt is a client of the service at a URL, through a network of the test's own.
func sessionAt(t *testing.T, at string, base http.RoundTripper, attempts int) *client.Session {
	t.Helper()
	s, err := client.NewSession(at+"/sessions", base, &client.SessionOptions{Options: client.Options{
		MaxAttempts: attempts, MaxElapsed: time.Minute, Backoff: 5 * time.Millisecond, MaxBackoff: 50 * time.Millisecond,
	}})
	must(t, err)
	return s
}

// lanes sends requests, so many at a time.
func lanes(t *testing.T, lanes, each int, send func(text string) error) {
	t.Helper()
	var work sync.WaitGroup
	for lane := range lanes {
		work.Go(func() {
			for n := range each {
				text := fmt.Sprintf("%d-%d", lane, n)
				if err := send(text); err != nil {
					t.Errorf("%s: %v", text, err)
				}
			}
		})
	}
	work.Wait()
}

// payOver sends a request, and checks its answer.
func payOver(ctx context.Context, s *client.Session, at, text string) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, at+"/pay", strings.NewReader(text))
	if err != nil {
		return err
	}
	res, err := (&http.Client{Transport: s}).Do(r)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err == nil && (res.StatusCode != http.StatusCreated || string(body) != text) {
		err = fmt.Errorf("got %d %q", res.StatusCode, body)
	}
	return err
}
