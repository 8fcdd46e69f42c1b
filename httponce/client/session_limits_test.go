package client_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/httponce/client"
	"github.com/everonce/everonce/session"
)

// TestSessionResentByNetHTTP: net/http sends a request again automatically, and then cannot connect. That is no
// evidence about the first copy.
func TestSessionResentByNetHTTP(t *testing.T) {
	b := newBank(t, session.Config{Lease: time.Minute})
	var server *httptest.Server
	server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/pay" {
			b.ServeHTTP(httptest.NewRecorder(), r)
			server.Listener.Close()
			panic(http.ErrAbortHandler)
		}
		b.ServeHTTP(w, r)
	}))
	s := newSession(t, server.URL, nil, client.SessionOptions{Options: client.Options{MaxAttempts: 1}})
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL+"/pay", strings.NewReader("rent"))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("X-Idempotency-Key", "1") // has net/http send it again
	resp, err := s.RoundTrip(req)
	if err == nil {
		resp.Body.Close()
	}
	if b.paid("rent") != 1 || !errors.Is(err, everonce.ErrOutcomeUnknown) || !strings.Contains(err.Error(), "refused") {
		t.Errorf("paid %d times, and got %v", b.paid("rent"), err)
	}
	if err := s.Close(t.Context()); err == nil {
		t.Error("Close reports success, but the service was not called")
	}
	server.Close()
}

// TestSessionRetriesWhatIsDone: RetryIf repeats an answer, and then there is no connection.
func TestSessionRetriesWhatIsDone(t *testing.T) {
	b := newBank(t, session.Config{Lease: time.Minute})
	s := newSession(t, "http://bank.test", scripted(b, "", "dial"), client.SessionOptions{Options: client.Options{
		MaxAttempts: 2, RetryIf: func(*http.Response, error, bool) bool { return true },
	}})
	if _, _, err := sendPay(t.Context(), s, "http://bank.test/pay", "rent"); !errors.Is(err, everonce.ErrOutcomeUnknown) {
		t.Errorf("got %v", err)
	}
	if err := s.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestSessionClientTimeout: http.Client.Timeout replaces an error that comes at the deadline by its own. So an
// operation ends earlier.
func TestSessionClientTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBank(t, session.Config{Lease: time.Hour})
		s := newSession(t, "http://bank.test", trip(func(r *http.Request) (*http.Response, error) {
			resp, err := direct{b}.RoundTrip(r)
			if r.URL.Path == "/pay" {
				<-r.Context().Done()
				return nil, r.Context().Err()
			}
			return resp, err
		}), client.SessionOptions{})
		_, err := (&http.Client{Transport: s, Timeout: time.Second}).Post("http://bank.test/pay", "text/plain", strings.NewReader("rent")) //nolint:noctx,bodyclose // Timeout is what is tested
		if !errors.Is(err, everonce.ErrOutcomeUnknown) || b.paid("rent") != 1 {
			t.Errorf("paid %d times, and got %v", b.paid("rent"), err)
		}
		if err := s.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// TestSessionWaitsTogether: operations share a registration that fails, and none waits for longer than
// Options.MaxElapsed.
func TestSessionWaitsTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSession(t, "http://bank.test", trip(func(r *http.Request) (*http.Response, error) {
			<-r.Context().Done()
			return nil, r.Context().Err()
		}), client.SessionOptions{Options: client.Options{MaxElapsed: time.Minute}})
		begun := time.Now()
		var senders sync.WaitGroup
		for range 20 {
			senders.Go(func() {
				if _, _, err := sendPay(t.Context(), s, "http://bank.test/pay", "rent"); err == nil || errors.Is(err, everonce.ErrOutcomeUnknown) {
					t.Errorf("got %v", err)
				}
			})
		}
		senders.Wait()
		if took := time.Since(begun); took > time.Minute {
			t.Errorf("the last one ended after %v", took)
		}
	})
}

type valueInContext struct{}

// TestSessionRenewals have nothing of the operation that came first, and one that hangs does not cost the session.
func TestSessionRenewals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBank(t, session.Config{Lease: time.Minute})
		var renewals atomic.Int64
		s := newSession(t, "http://bank.test", trip(func(r *http.Request) (*http.Response, error) {
			if r.Method == http.MethodPut {
				if r.Context().Value(valueInContext{}) != nil {
					t.Error("the renewal has a value of an operation's context")
				}
				if renewals.Add(1) == 1 {
					<-r.Context().Done()
					return nil, r.Context().Err()
				}
			}
			return direct{b}.RoundTrip(r)
		}), client.SessionOptions{OneSession: true, Options: client.Options{AttemptTimeout: -1}})
		if err := paid(context.WithValue(t.Context(), valueInContext{}, "food"), s, "http://bank.test", "food"); err != nil {
			t.Error(err)
		}
		time.Sleep(5 * time.Minute)
		if err := paid(t.Context(), s, "http://bank.test", "rent"); err != nil {
			t.Error(err)
		}
		if err := s.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}
