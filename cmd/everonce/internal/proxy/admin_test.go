package proxy

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/cmd/everonce/internal/storeurl"
	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/httponce"
)

// The second listener tells of health, of readiness and of figures; the first has none of these.
func TestProxyAdmin(t *testing.T) {
	service := &counting{}
	p := start(t, service.ServeHTTP)
	for range 2 {
		send(t, "POST", p.url+"/orders/7?token=hunter2", "amount=1", "Idempotency-Key", "secret-key", "Authorization", "Bearer hunter2")
	}
	send(t, "POST", p.url+"/orders/7", "amount=2", "Idempotency-Key", "secret-key", "Authorization", "Bearer hunter2")
	send(t, "GET", p.url+"/orders", "")
	for path, want := range map[string]string{"/healthz": "ok\n", "/readyz": "ok\n"} {
		if res, body := send(t, "GET", p.admin+path, ""); res.StatusCode != http.StatusOK || body != want {
			t.Errorf("%s: %d %q", path, res.StatusCode, body)
		}
	}
	_, text := send(t, "GET", p.admin+"/metrics", "")
	for _, line := range []string{
		`everonce_http_requests_total{http_response_status_code="201",http_route="other",outcome="executed"} 1`,
		`everonce_http_requests_total{http_response_status_code="201",http_route="other",outcome="replayed"} 1`,
		`everonce_http_requests_total{http_response_status_code="422",http_route="other",outcome="mismatch"} 1`,
		`everonce_proxy_unkeyed_requests_total{http_response_status_code="201"} 1`,
		`everonce_http_problems_total{http_route="other",problem="key-reused"} 1`,
		`everonce_http_request_duration_seconds_count{http_route="other",outcome="executed"} 1`,
		`everonce_duplicates_total{kind="do"} 1`,
		`everonce_operations_running 0`,
		`everonce_store_errors_total 0`,
	} {
		if !strings.Contains(text, "\n"+line+"\n") {
			t.Errorf("/metrics has no line %s", line)
		}
	}
	for _, secret := range []string{"hunter2", "secret-key", "/orders"} {
		if strings.Contains(text, secret) {
			t.Errorf("/metrics has %q", secret)
		}
	}
	log := p.log.String()
	for _, part := range []string{`"path":"/orders/7"`, `"outcome":"executed"`, `"outcome":"replayed"`, `"key":"`, `"route":"other"`, `"problem":"key-reused"`, `"client":"127.0.0.1"`} {
		if !strings.Contains(log, part) {
			t.Errorf("the log has no %s: %s", part, log)
		}
	}
	for _, secret := range []string{"hunter2", "secret-key", "token="} {
		if strings.Contains(log, secret) {
			t.Errorf("the log has %q: %s", secret, log)
		}
	}
	if res, _ := send(t, "GET", p.url+"/metrics", ""); res.StatusCode != http.StatusCreated { // the service's
		t.Errorf("/metrics of the first listener: %d", res.StatusCode)
	}
}

// A scraper may know the proxy by any name.
func TestTheSecondListenerTakesEveryHost(t *testing.T) {
	p := start(t, (&counting{}).ServeHTTP)
	for _, path := range []string{"/healthz", "/readyz", "/metrics"} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, p.admin+path, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		r.Host = "proxy.internal"
		res, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		if res.StatusCode != http.StatusOK {
			t.Errorf("%s: %d", path, res.StatusCode)
		}
	}
}

// Routes are labels as they are configured, and only those.
func TestMetricsRoutes(t *testing.T) {
	m := newMetrics([]string{"POST /payments/{id}", "api.example.com/", "PUT\t/tab"})
	for name, want := range map[string]string{"/tab": "/tab", "/payments/{id}": "/payments/{id}", "api.example.com/": "api.example.com/", "/payments/7": "other", "": "other"} {
		if got := m.route(name); got != want {
			t.Errorf("%q is counted as %q, want %q", name, got, want)
		}
	}
}

// rare tells a proxy's figures of all that can happen.
func rare(t *testing.T) *metrics {
	t.Helper()
	m := newMetrics([]string{"/a"})
	m.withoutKey(t.Context(), http.StatusOK)
	m.served(t.Context(), httponce.Served{Route: "/a", FailedOpen: true, Waited: 1, Problem: "p"})
	for _, o := range []everonce.Outcome{everonce.Replayed, everonce.NotRecorded} {
		m.End(m.Start(t.Context(), everonce.Op{Kind: "do"}), everonce.Observation{Op: everonce.Op{Kind: "do"}, Outcome: o, Since: time.Second})
	}
	s := &Server{metrics: m, log: slog.New(slog.DiscardHandler), store: abandonedStore{}}
	s.recordSweep(driver.PurgeResult{Records: 4}, everonce.ErrStore)
	s.count(t.Context(), abandonedStore{})
	return m
}

// abandonedStore has records that wait for somebody to settle them.
type abandonedStore struct{ storeurl.Store }

func (abandonedStore) Health(context.Context, driver.HealthRequest) (driver.HealthResult, error) {
	return driver.HealthResult{Claimed: 1, Abandoned: 5}, nil
}

// The metrics show the proxy's own work: janitor rounds, and the number of records.
func TestMetricsOfWhatIsRare(t *testing.T) {
	m := rare(t)
	for _, line := range []string{
		`everonce_http_failed_open_total{http_route="/a"} 1`, `everonce_purged_records_total 4`, `everonce_janitor_errors_total 1`, `everonce_records{state="abandoned"} 5`,
	} {
		if !shows(m, line) {
			t.Errorf("/metrics has no line %s", line)
		}
	}
}

// The reference has every metric, and no other.
func TestMetricsReference(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "..", "..", "docs", "reference", "proxy.md"))
	if err != nil {
		t.Fatal(err)
	}
	names := func(pattern, in string) []string {
		var found []string
		for _, m := range regexp.MustCompile(pattern).FindAllStringSubmatch(in, -1) {
			found = append(found, m[1])
		}
		slices.Sort(found)
		return found
	}
	w := httptest.NewRecorder()
	rare(t).page.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", http.NoBody))
	told, shown := names("(?m)^\\| `(everonce_[a-z_]+)`", string(text)), names("(?m)^# TYPE (everonce_[a-z_]+) ", w.Body.String())
	if !slices.Equal(told, shown) {
		t.Errorf("docs/reference/proxy.md has\n%q\nthe page has\n%q", told, shown)
	}
}

func TestCheckAdmin(t *testing.T) {
	for addr, want := range map[string]bool{
		"127.0.0.1:0": true, "127.9.9.9:1": true, "[::1]:9464": true, "localhost:9464": true,
		":9464": false, "0.0.0.0:9464": false, "[::]:9464": false, "192.0.2.1:9464": false, "host:9464": false, "9464": false,
	} {
		if err := checkAdmin(addr, false); (err == nil) != want {
			t.Errorf("%s: %v", addr, err)
		}
	}
	if err := checkAdmin(":9464", true); err != nil {
		t.Error(err)
	}
}

// Asked to end, a proxy is ready no more and takes no connections, and lets what runs end: its answer is
// sent, and recorded.
func TestProxyDrains(t *testing.T) {
	for name, args := range map[string][]string{"the client waits": nil, "the client was answered": {"--answer-within=1ms"}, "there is no key": {"--methods=PUT"}} {
		keyed, waits := name != "there is no key", name != "the client was answered"
		t.Run(name, func(t *testing.T) {
			began, finish := make(chan struct{}), make(chan struct{})
			up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				close(began)
				<-finish
				io.WriteString(w, "done")
			}))
			t.Cleanup(up.Close)
			db := filepath.Join(t.TempDir(), "proxy.db")
			p := startBefore(t, up.URL, append(args, "--store=sqlite:"+db, "--compare-ignore-host")...)
			type answer struct {
				status int
				body   string
			}
			answered := make(chan answer, 1)
			go func() {
				res, body := send(t, "POST", p.url+"/", "", "Idempotency-Key", "k")
				answered <- answer{res.StatusCode, body}
			}()
			<-began
			if !waits {
				if a := <-answered; a.status != http.StatusServiceUnavailable {
					t.Errorf("%+v, want 503", a)
				}
			}
			p.stop()
			for { // its listener closes when it drains
				c, err := net.Dial("tcp", strings.TrimPrefix(p.url, "http://"))
				if err != nil {
					break
				}
				c.Close()
			}
			if res, body := send(t, "GET", p.admin+"/readyz", ""); res.StatusCode != http.StatusServiceUnavailable || !strings.Contains(body, "draining") {
				t.Errorf("/readyz: %d %s", res.StatusCode, body)
			}
			close(finish)
			if <-p.ended; p.err != nil {
				t.Errorf("it ended with %v", p.err)
			}
			if waits {
				if a := <-answered; a != (answer{http.StatusOK, "done"}) {
					t.Errorf("the client got %+v", a)
				}
			}
			if !keyed {
				return
			}
			again := startBefore(t, up.URL, "--store=sqlite:"+db, "--compare-ignore-host")
			res, body := send(t, "POST", again.url+"/", "", "Idempotency-Key", "k")
			if res.Header.Get("Idempotent-Replayed") != "true" || body != "done" {
				t.Errorf("after a restart: %d %q", res.StatusCode, body)
			}
		})
	}
}

// At a second signal, or when its time is over, the proxy ends without the requests that still run, and says so: with a
// key or without, over any protocol, and with any number of idle connections.
func TestProxyDoesNotDrainForEver(t *testing.T) {
	cert, key := writePair(t, t.TempDir(), "proxy")
	for protocol, args := range map[string][]string{"HTTP/1.1": nil, "HTTP/2.0": {"--tls-cert=" + cert, "--tls-key=" + key}} {
		for _, keyed := range []bool{true, false} {
			for name, hurry := range map[string]func(*proxied){"asked again": func(p *proxied) { close(p.now) }, "its time is over": func(*proxied) {}} {
				t.Run(fmt.Sprintf("%s, %s, a key %v", name, protocol, keyed), func(t *testing.T) {
					began, finish := make(chan struct{}), make(chan struct{})
					defer close(finish)
					drain := "--drain-timeout=1h"
					if name == "its time is over" {
						drain = "--drain-timeout=50ms"
					}
					p := start(t, func(http.ResponseWriter, *http.Request) {
						close(began)
						<-finish
					}, append([]string{drain}, args...)...)
					silent, err := net.Dial("tcp", p.Server.publicLn.Addr().String())
					if err != nil {
						t.Fatal(err)
					}
					defer silent.Close()
					tr := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: true}
					defer tr.CloseIdleConnections()
					gone := make(chan error)
					go func() {
						r, err := http.NewRequest(http.MethodPost, p.url+"/", nil)
						if err == nil {
							if keyed {
								r.Header.Set("Idempotency-Key", "k")
							}
							_, err = tr.RoundTrip(r)
						}
						gone <- err
					}()
					<-began
					p.stop()
					hurry(p)
					if <-p.ended; !errors.Is(p.err, ErrNotDrained) {
						t.Errorf("it ended with %v", p.err)
					}
					if err := <-gone; err == nil {
						t.Error("the client got an answer")
					}
				})
			}
		}
	}
}

// The drain waits for work whose client was already answered, and reports it if the time runs out.
func TestProxyWaitsForWorkWithoutAClient(t *testing.T) {
	p := start(t, (&counting{}).ServeHTTP, "--drain-timeout=50ms")
	p.running.Start(t.Context(), everonce.Op{})
	p.stop()
	if <-p.ended; !errors.Is(p.err, ErrNotDrained) {
		t.Errorf("it ended with %v", p.err)
	}
}

// A listener that breaks ends the proxy, and not without a word.
func TestProxyEndsWhenItsListenerDoes(t *testing.T) {
	cert, key := writePair(t, t.TempDir(), "proxy")
	for name, args := range map[string][]string{"in clear": nil, "TLS": {"--tls-cert=" + cert, "--tls-key=" + key}} {
		c := configOf(t, append(args, "--listen=127.0.0.1:0", "--admin=none", "--store=memory:", "--upstream=http://127.0.0.1:1")...)
		s, err := New(t.Context(), c, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		if err := s.publicLn.(*listener).Listener.Close(); err != nil {
			t.Fatal(err)
		}
		if err := s.Run(t.Context(), nil); !errors.Is(err, net.ErrClosed) {
			t.Errorf("%s: it ended with %v", name, err)
		}
	}
}
