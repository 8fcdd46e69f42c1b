package client_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/httponce/client"
	"github.com/everonce/everonce/session"
)

// scripted answers the attempts of an operation in turn, and repeats the last step. "" is the service's own answer;
// "lost" loses its answer after the effect, and "cut" cuts its body; "other" answers for another number; "dial" refuses
// the connection. "undone" is the service's refusal that nothing was done, and a status with "ours" is its answer that
// does not say so.
func scripted(b *bank, steps ...string) trip {
	var n atomic.Int64
	return func(r *http.Request) (*http.Response, error) {
		if r.URL.Path != "/pay" {
			return direct{b}.RoundTrip(r)
		}
		step := steps[min(int(n.Add(1)), len(steps))-1]
		number := r.Header.Get("Idempotency-Session-Request")
		w := httptest.NewRecorder()
		switch step {
		case "":
			return direct{b}.RoundTrip(r)
		case "lost":
			_, err := direct{b}.RoundTrip(r)
			return nil, errors.Join(errGone, err)
		case "cut":
			resp, err := direct{b}.RoundTrip(r)
			resp.Body = io.NopCloser(iotest.ErrReader(io.ErrUnexpectedEOF))
			return resp, err
		case "other":
			resp, err := direct{b}.RoundTrip(r)
			resp.Header.Set("Idempotency-Session-Request", "77")
			return resp, err
		case "dial":
			return nil, &net.OpError{Op: "dial", Err: errGone}
		case "307":
			http.Redirect(w, r, "http://bank.test/pay", http.StatusTemporaryRedirect)
		case "unreachable":
			w.Header().Set("Content-Type", "application/problem+json")
			w.WriteHeader(http.StatusBadGateway)
			fmt.Fprint(w, `{"type":"https://bank.test/upstream-unreachable","title":"The service cannot be reached","status":502}`)
		case "busy":
			w.Header().Set("Idempotency-Session-Request", number)
			w.Header().Set("Retry-After", "0")
			w.WriteHeader(http.StatusConflict)
		case "undone":
			w.Header().Set("Idempotency-Session-Request", number)
			w.Header().Set("Idempotency-Session-Outcome", "none")
			w.WriteHeader(http.StatusServiceUnavailable)
		default:
			status, ours := 0, ""
			if fmt.Sscan(step, &status, &ours); ours != "" {
				w.Header().Set("Idempotency-Session-Request", number)
			}
			w.WriteHeader(status)
		}
		return w.Result(), nil
	}
}

// TestSessionOutcomes: an error says that the outcome is unknown if, and only if, the operation may have taken effect.
func TestSessionOutcomes(t *testing.T) {
	const unknown, not = true, false
	for _, c := range []struct {
		steps   string
		status  int   // of the answer, or 0 for an error
		unknown bool  // the error
		is      error // too
	}{
		{"", 201, not, nil},
		{"lost,", 201, not, nil},
		{"503,502,429,", 201, not, nil},
		{"busy,busy,busy,busy,busy,busy,", 201, not, nil}, // more often than MaxAttempts
		{"401", 401, not, nil},
		{"429", 429, not, nil},
		{"undone", 503, not, nil},
		{"unreachable", 502, not, nil},
		{"dial", 0, not, errGone},
		{"lost", 0, unknown, nil},
		{"cut,", 201, not, nil},
		{"cut,dial", 0, unknown, nil},
		{"cut,401", 0, unknown, nil},
		{"503 ours", 0, unknown, nil}, // as after a lost commit
		{"503 ours,dial", 0, unknown, nil},
		{"lost,409 ours", 0, unknown, nil},
		{"lost,422 ours", 0, unknown, nil},
		{"other", 0, unknown, client.ErrNotHeeded},
		{"lost,other", 0, unknown, nil},
		{"503", 0, unknown, nil}, // its sender is unknown
		{"500", 0, unknown, nil},
		{"504,401", 0, unknown, nil}, // of who is in between: the service was not asked what became of it
		{"lost,undone", 0, unknown, nil},
		{"lost,307", 0, unknown, nil}, // followed, it would be another operation
		{"200", 0, unknown, client.ErrNotHeeded},
	} {
		t.Run(c.steps, func(t *testing.T) {
			b := newBank(t, session.Config{Lease: time.Minute})
			s := newSession(t, "http://bank.test", scripted(b, strings.Split(c.steps, ",")...), client.SessionOptions{Options: client.Options{MaxAttempts: 4}})
			status, _, err := sendPay(t.Context(), s, "http://bank.test/pay", "rent")
			if status != c.status || (err == nil) != (c.status > 0) || errors.Is(err, everonce.ErrOutcomeUnknown) != c.unknown {
				t.Errorf("got %d, %v", status, err)
			}
			if c.unknown && errors.Is(err, errGone) {
				t.Errorf("the cause of an unknown outcome can be taken for another error: %v", err)
			}
			if c.is != nil && !errors.Is(err, c.is) {
				t.Errorf("the error is %v, want one that is %v", err, c.is)
			}
			if err := s.Close(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestSessionGivenUp: an operation whose caller gave up has an unknown outcome. The client reports that to the service
// at once, so that a late copy has no effect.
func TestSessionGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBank(t, session.Config{Lease: time.Minute})
		ctx, cancel := context.WithCancel(t.Context())
		var held *http.Request
		s := newSession(t, "http://bank.test", trip(func(r *http.Request) (*http.Response, error) {
			if r.URL.Path == "/pay" {
				held = r.Clone(context.WithoutCancel(r.Context()))
				cancel()
				return nil, r.Context().Err()
			}
			return direct{b}.RoundTrip(r)
		}), client.SessionOptions{})
		_, _, err := sendPay(ctx, s, "http://bank.test/pay", "rent")
		if !errors.Is(err, everonce.ErrOutcomeUnknown) || !strings.Contains(err.Error(), "canceled") {
			t.Errorf("the operation given up: %v", err)
		}
		synctest.Wait()
		held.Body = io.NopCloser(strings.NewReader("rent"))
		resp, err := direct{b}.RoundTrip(held)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if resp.StatusCode != http.StatusGone || b.paid("rent") != 0 {
			t.Errorf("the copy got %d, and the rent was paid %d times", resp.StatusCode, b.paid("rent"))
		}
		if err := s.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// TestSessionSecretIsSentToItsOriginOnly: it is sent to no other origin, and is not in what the application sees.
func TestSessionSecretIsSentToItsOriginOnly(t *testing.T) {
	b := newBank(t, session.Config{Lease: time.Minute})
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("another origin was asked") }))
	defer elsewhere.Close()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/moved" {
			http.Redirect(w, r, elsewhere.URL+"/pay", http.StatusTemporaryRedirect)
			return
		}
		b.ServeHTTP(w, r)
	}))
	defer server.Close()
	look := client.SessionOptions{Options: client.Options{
		RetryIf: func(resp *http.Response, _ error, retry bool) bool {
			if resp != nil && strings.Contains(fmt.Sprint(resp.Request.Header), "Secret") {
				t.Error("RetryIf sees the secret")
			}
			return retry
		},
		OnRetry: func(_ context.Context, r client.Retry) {
			if strings.Contains(fmt.Sprint(r.Request.Header), "Secret") {
				t.Error("OnRetry sees the secret")
			}
		},
	}}
	lost := false
	s := newSession(t, server.URL, trip(func(r *http.Request) (*http.Response, error) {
		if !lost { // the registration
			lost = true
			return nil, errGone
		}
		return http.DefaultTransport.RoundTrip(r)
	}), look)
	if put, err := http.NewRequestWithContext(t.Context(), http.MethodPut, server.URL+"/pay", strings.NewReader("rent")); err != nil {
		t.Fatal(err)
	} else if resp, err := s.RoundTrip(put); !errors.Is(err, client.ErrMethod) || resp != nil {
		t.Errorf("a PUT without a number: %v", err)
	}
	for _, url := range []string{elsewhere.URL + "/pay", server.URL + "/moved"} {
		_, _, err := sendPay(t.Context(), s, url, "rent")
		if !errors.Is(err, client.ErrOtherOrigin) || errors.Is(err, everonce.ErrOutcomeUnknown) {
			t.Errorf("%s: %v", url, err)
		}
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL+"/pay", strings.NewReader("rent"))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := s.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if strings.Contains(fmt.Sprint(resp.Request.Header, req.Header, resp.Header), "Secret") {
		t.Errorf("the secret is in %v", resp.Request.Header)
	}
	if _, _, err := sendPay(t.Context(), s, server.URL+"/plain", "x"); !errors.Is(err, client.ErrNotHeeded) {
		t.Errorf("a service without sessions: %v", err)
	}
	if err := s.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if _, _, err := sendPay(t.Context(), s, server.URL+"/pay", "rent"); !errors.Is(err, client.ErrSessionClosed) {
		t.Errorf("after Close: %v", err)
	}
}

// TestSessionWindow: operations beyond the service's window wait, and are not refused. In an ordered session they run
// one after the other.
func TestSessionWindow(t *testing.T) {
	for _, ordered := range []bool{false, true} {
		b := newBank(t, session.Config{Lease: time.Minute, Window: 4})
		var at, most, refused atomic.Int64
		var mu sync.Mutex
		var numbers []string
		net := trip(func(r *http.Request) (*http.Response, error) {
			if r.URL.Path == "/pay" {
				mu.Lock()
				numbers = append(numbers, r.Header.Get("Idempotency-Session-Request"))
				mu.Unlock()
				most.Store(max(most.Load(), at.Add(1)))
				defer at.Add(-1)
			}
			resp, err := direct{b}.RoundTrip(r)
			if err == nil && resp.StatusCode >= 400 {
				refused.Add(1)
			}
			return resp, err
		})
		s := newSession(t, "http://bank.test", net, client.SessionOptions{Ordered: ordered})
		if wrong := audit(t, b, func(text string) error { return paid(t.Context(), s, "http://bank.test", text) }); len(wrong) > 0 {
			t.Error(wrong)
		}
		if refused.Load() > 0 || most.Load() > 4 || ordered && most.Load() > 1 {
			t.Errorf("ordered %t: %d were refused, and %d under way at once", ordered, refused.Load(), most.Load())
		}
		for i, n := range numbers {
			if ordered && n != fmt.Sprint(i+1) {
				t.Errorf("the number %s came as the %d.", n, i+1)
			}
		}
		if err := s.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

// TestSessionIsRegisteredOnce: a registration whose answer was lost is repeated, and finds the session. Close leaves
// room.
func TestSessionIsRegisteredOnce(t *testing.T) {
	b := newBank(t, session.Config{Lease: time.Minute, PerPrincipal: 1})
	for range 2 {
		lost := false
		s := newSession(t, "http://bank.test", trip(func(r *http.Request) (*http.Response, error) {
			resp, err := direct{b}.RoundTrip(r)
			if !lost && r.URL.Path == "/sessions" {
				lost = true
				return nil, errGone
			}
			return resp, err
		}), client.SessionOptions{})
		if err := paid(t.Context(), s, "http://bank.test", "rent"); err != nil {
			t.Error(err)
		}
		another := newSession(t, "http://bank.test", direct{b}, client.SessionOptions{Options: client.Options{MaxAttempts: 1}})
		if err := paid(t.Context(), another, "http://bank.test", "rent"); err == nil || errors.Is(err, everonce.ErrOutcomeUnknown) || !strings.Contains(err.Error(), "too many sessions") {
			t.Errorf("a session over the quota: %v", err)
		}
		if err := s.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

// TestSessionIsKept while its client is quiet; and a client whose renewals did not come through asks before it sends,
// so that nothing is unknown.
func TestSessionIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBank(t, session.Config{Lease: time.Minute})
		var cut atomic.Bool
		var used []string
		s := newSession(t, "http://bank.test", trip(func(r *http.Request) (*http.Response, error) {
			if cut.Load() {
				return nil, errGone
			}
			if r.URL.Path == "/pay" {
				used = append(used, r.Header.Get("Idempotency-Session")+" "+r.Header.Get("Idempotency-Session-Request"))
			}
			return direct{b}.RoundTrip(r)
		}), client.SessionOptions{})
		for _, quiet := range []time.Duration{0, 10 * time.Minute, time.Second} {
			time.Sleep(quiet)
			if err := paid(t.Context(), s, "http://bank.test", "rent"); err != nil {
				t.Error(err)
			}
		}
		cut.Store(true)
		time.Sleep(2 * time.Minute)
		cut.Store(false)
		if err := paid(t.Context(), s, "http://bank.test", "rent"); err != nil {
			t.Error(err)
		}
		if want := []string{"1 1", "1 2", "1 3", "2 1"}; !slices.Equal(used, want) {
			t.Errorf("sessions and numbers are %v, want %v", used, want)
		}
		if err := s.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// TestSessionIsKeptBehindARequest: a service that cannot renew a session while a request of it is executed is asked
// again until it does.
func TestSessionIsKeptBehindARequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBank(t, session.Config{Lease: time.Minute})
		var mu sync.Mutex
		var registered []string
		renewed := time.Now()
		s := newSession(t, "http://bank.test", trip(func(r *http.Request) (*http.Response, error) {
			mu.Lock()
			defer mu.Unlock()
			switch {
			case r.Method == http.MethodPut && time.Since(renewed) < 50*time.Second:
				w := httptest.NewRecorder()
				w.Header().Set("Content-Type", "application/problem+json")
				w.Header().Set("Retry-After", "1")
				w.WriteHeader(http.StatusConflict)
				fmt.Fprint(w, `{"type":"https://bank.test/session-busy","title":"The session is busy","status":409}`)
				return w.Result(), nil
			case r.Method == http.MethodPut:
				renewed = time.Now()
			case r.URL.Path == "/pay":
				registered = append(registered, r.Header.Get("Idempotency-Session"))
			}
			return direct{b}.RoundTrip(r)
		}), client.SessionOptions{})
		for range 2 {
			if err := paid(t.Context(), s, "http://bank.test", "rent"); err != nil {
				t.Error(err)
			}
			time.Sleep(10 * time.Minute)
		}
		if want := []string{"1", "1"}; !slices.Equal(registered, want) {
			t.Errorf("sent under the sessions %v, want %v", registered, want)
		}
		if err := s.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// TestSessionLongProblem: a problem that is too long to be read as one is the caller's to read, whole.
func TestSessionLongProblem(t *testing.T) {
	long := `{"title":"` + strings.Repeat("x", 3<<20) + `"}`
	for _, status := range []int{http.StatusNotFound, http.StatusNotImplemented} {
		b := newBank(t, session.Config{Lease: time.Minute})
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/sessions" {
				b.ServeHTTP(w, r)
				return
			}
			w.Header().Set("Content-Type", "application/problem+json")
			w.Header().Set("Idempotency-Session-Request", "1")
			w.Header().Set("Idempotency-Session-Outcome", "none")
			w.WriteHeader(status)
			io.WriteString(w, long)
		}))
		defer server.Close()
		s := newSession(t, server.URL, nil, client.SessionOptions{})
		got, body, err := sendPay(t.Context(), s, server.URL+"/pay", "rent")
		if got != status || body != long || err != nil {
			t.Errorf("got %d, %d bytes, %v", got, len(body), err)
		}
		if err := s.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

// TestSessionAfterRefusals: operations that came to nothing, more than the window has, do not cost the session its
// renewals.
func TestSessionAfterRefusals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBank(t, session.Config{Lease: time.Minute, Window: 4, PerPrincipal: 1})
		s := newSession(t, "http://bank.test", direct{b}, client.SessionOptions{OneSession: true})
		for range 20 {
			if status, _, err := sendPay(t.Context(), s, "http://bank.test/pay", "refuse"); status != http.StatusUnauthorized {
				t.Fatal(status, err)
			}
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

// TestSessionOptions: what cannot be is refused.
func TestSessionOptions(t *testing.T) {
	for name, c := range map[string]struct {
		url  string
		opts client.SessionOptions
	}{
		"relative":   {"/sessions", client.SessionOptions{}},
		"KeyHeader":  {"http://bank.test/s", client.SessionOptions{Options: client.Options{KeyHeader: "Idempotency-Key"}}},
		"RawKey":     {"http://bank.test/s", client.SessionOptions{Options: client.Options{RawKey: true}}},
		"MaxBackoff": {"http://bank.test/s", client.SessionOptions{Options: client.Options{MaxBackoff: -1}}},
	} {
		if s, err := client.NewSession(c.url, nil, &c.opts); err == nil || s != nil {
			t.Errorf("%s is accepted", name)
		}
	}
}
