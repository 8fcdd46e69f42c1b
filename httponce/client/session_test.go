package client_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/httponce"
	"github.com/everonce/everonce/httponce/client"
	"github.com/everonce/everonce/session"
	"github.com/everonce/everonce/session/memsession"
)

// bank counts the effects of a service with sessions.
type bank struct {
	http.Handler
	mu      sync.Mutex
	effects map[string]int
}

func newBank(t *testing.T, config session.Config) *bank {
	t.Helper()
	b := &bank{effects: map[string]int{}}
	host, err := memsession.New(b, config, nil)
	if err != nil {
		t.Fatal(err)
	}
	opts := &httponce.Options{Log: slog.New(slog.DiscardHandler)}
	pay, err := httponce.HandleSession(host, httponce.Unscoped(), pay, opts)
	if err != nil {
		t.Fatal(err)
	}
	register, err := httponce.Sessions(host, httponce.Unscoped(), opts)
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.Handle("/pay", pay)
	mux.Handle("/sessions", register)
	mux.HandleFunc("/plain", func(http.ResponseWriter, *http.Request) {})
	b.Handler = mux
	return b
}

func pay(w http.ResponseWriter, r *http.Request, b *bank) error {
	text, err := io.ReadAll(r.Body)
	if err != nil {
		return err
	}
	if string(text) == "refuse" {
		w.WriteHeader(http.StatusUnauthorized)
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.effects[string(text)]++
	w.WriteHeader(http.StatusCreated)
	_, err = fmt.Fprintf(w, "%s done", text)
	return err
}

func (b *bank) paid(text string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.effects[text]
}

// direct is a network without any: the handler is called. It is of use in a bubble.
type direct struct{ http.Handler }

func (d direct) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	in := r.Clone(r.Context())
	w := httptest.NewRecorder()
	d.ServeHTTP(w, in)
	return w.Result(), nil
}

// trip is a network of the test's own.
type trip func(*http.Request) (*http.Response, error)

func (f trip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func newSession(t *testing.T, at string, base http.RoundTripper, opts client.SessionOptions) *client.Session {
	t.Helper()
	if opts.Backoff == 0 {
		opts.Backoff, opts.MaxBackoff = time.Millisecond, time.Millisecond
	}
	s, err := client.NewSession(at+"/sessions", base, &opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.CloseIdleConnections)
	return s
}

// sendPay sends one operation.
func sendPay(ctx context.Context, over http.RoundTripper, url, text string) (status int, body string, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(text))
	if err != nil {
		return 0, "", err
	}
	resp, err := (&http.Client{Transport: over}).Do(req)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(b), err
}

// unreliable is a network that loses requests and answers, and delivers requests twice, late too.
type unreliable struct {
	base   http.RoundTripper
	copies sync.WaitGroup
	lost   atomic.Int64 // answers
}

var errGone = errors.New("the network lost it")

func (l *unreliable) RoundTrip(r *http.Request) (*http.Response, error) {
	text, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	again := func(ctx context.Context) *http.Request {
		c := r.Clone(ctx)
		c.Body = io.NopCloser(strings.NewReader(string(text)))
		return c
	}
	fate := rand.N(6)
	if fate == 0 {
		return nil, errGone
	}
	if fate == 1 {
		l.copies.Go(func() {
			time.Sleep(rand.N(20 * time.Millisecond))
			if resp, err := l.base.RoundTrip(again(context.WithoutCancel(r.Context()))); err == nil {
				resp.Body.Close()
			}
		})
	}
	resp, err := l.base.RoundTrip(again(r.Context()))
	if fate == 2 && err == nil {
		resp.Body.Close()
		l.lost.Add(1)
		return nil, errGone
	}
	return resp, err
}

// audit sends operations at the same time through what sends one, and returns those without one effect.
func audit(t *testing.T, b *bank, send func(text string) error) (wrong []string) {
	t.Helper()
	const lanes, each = 32, 8
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
	b.mu.Lock()
	defer b.mu.Unlock()
	for text, times := range b.effects {
		if times != 1 {
			wrong = append(wrong, fmt.Sprintf("%s: %d effects", text, times))
		}
	}
	if len(b.effects) != lanes*each {
		t.Errorf("%d operations had an effect, want %d", len(b.effects), lanes*each)
	}
	return wrong
}

// TestSessionOverALossyNetwork: 32 operations at a time, and the network loses and doubles. Each takes effect once. The
// audit sees it if a client registers another session and sends again.
func TestSessionOverALossyNetwork(t *testing.T) {
	for name, planted := range map[string]bool{"one session": false, "planted: sent again under another session": true} {
		t.Run(name, func(t *testing.T) {
			b := newBank(t, session.Config{Lease: time.Minute, Window: 16})
			server := httptest.NewServer(b)
			defer server.Close()
			net := &unreliable{base: server.Client().Transport}
			s := newSession(t, server.URL, net, client.SessionOptions{Options: client.Options{MaxAttempts: 100}})
			send := func(text string) error { return paid(t.Context(), s, server.URL, text) }
			if planted {
				send = func(text string) (err error) {
					for err = errGone; err != nil; {
						another := newSession(t, server.URL, net, client.SessionOptions{Options: client.Options{MaxAttempts: 1}})
						err = paid(t.Context(), another, server.URL, text)
						_ = another.Close(t.Context()) // the network may lose that too
					}
					return nil
				}
			}
			wrong := audit(t, b, send)
			net.copies.Wait()
			if err := s.Close(t.Context()); err != nil {
				t.Error(err)
			}
			if (len(wrong) > 0) != planted {
				t.Errorf("without one effect: %v", wrong)
			}
			if net.lost.Load() == 0 {
				t.Error("no answer was lost: the test tests nothing")
			}
		})
	}
}

// paid sends an operation, and checks its answer.
func paid(ctx context.Context, s *client.Session, at, text string) error {
	status, body, err := sendPay(ctx, s, at+"/pay", text)
	if err == nil && (status != http.StatusCreated || body != text+" done") {
		err = fmt.Errorf("got %d %q", status, body)
	}
	return err
}

// TestSessionExpiresUnderWay: an operation that was sent before has an unknown outcome, and is not sent under another
// session. Later operations have another session, unless OneSession is set.
func TestSessionExpiresUnderWay(t *testing.T) {
	for _, only := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			b := newBank(t, session.Config{Lease: time.Minute})
			var cut atomic.Bool
			var sent atomic.Int64
			net := trip(func(r *http.Request) (*http.Response, error) {
				if cut.Load() {
					return nil, errGone
				}
				resp, err := direct{b}.RoundTrip(r)
				if r.URL.Path == "/pay" && sent.Add(1) == 1 {
					cut.Store(true) // behind the effect
					return nil, errGone
				}
				return resp, err
			})
			opts := client.SessionOptions{OneSession: only}
			opts.MaxAttempts, opts.MaxElapsed, opts.Backoff, opts.MaxBackoff = 1000, -1, time.Second, time.Second
			s := newSession(t, "http://bank.test", net, opts)
			var call sync.WaitGroup
			call.Go(func() {
				_, _, err := sendPay(t.Context(), s, "http://bank.test/pay", "rent")
				if !errors.Is(err, everonce.ErrOutcomeUnknown) || errors.Is(err, session.ErrSessionExpired) || !strings.Contains(err.Error(), "expired") {
					t.Errorf("the operation under way: %v", err)
				}
			})
			time.Sleep(2 * time.Minute)
			cut.Store(false)
			call.Wait()
			status, _, err := sendPay(t.Context(), s, "http://bank.test/pay", "food")
			switch {
			case !only && (err != nil || status != http.StatusCreated):
				t.Errorf("the operation after it: %d, %v", status, err)
			case only && (!errors.Is(err, session.ErrSessionExpired) || errors.Is(err, everonce.ErrOutcomeUnknown)):
				t.Errorf("the operation after it: %d, %v", status, err)
			}
			if err := s.Close(t.Context()); err != nil {
				t.Error(err)
			}
			if b.paid("rent") != 1 {
				t.Errorf("the rent was paid %d times", b.paid("rent"))
			}
		})
	}
}
