package proxy

import (
	"context"
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
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/cmd/everonce/internal/storeurl"
	"github.com/everonce/everonce/httponce"
	"github.com/everonce/everonce/store/memstore"
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
		`everonce_proxy_requests_total{code="2xx",outcome="executed",route="other"} 1`,
		`everonce_proxy_requests_total{code="2xx",outcome="replayed",route="other"} 1`,
		`everonce_proxy_requests_total{code="4xx",outcome="mismatch",route="other"} 1`,
		`everonce_proxy_unkeyed_requests_total{code="2xx"} 1`,
		`everonce_proxy_problems_total{problem="key-reused",route="other"} 1`,
		`everonce_proxy_request_seconds_count{outcome="executed",route="other"} 1`,
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
	for _, part := range []string{`"path":"/orders/7"`, `"outcome":"executed"`, `"outcome":"replayed"`, `"key":"`, `"problem":"key-reused"`, `"client":"127.0.0.1"`} {
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

// Routes are labels as they are configured, and only those.
func TestMetricsRoutes(t *testing.T) {
	m := newMetrics([]string{"POST /payments/{id}", "api.example.com/", "PUT\t/tab"})
	for name, want := range map[string]string{"/tab": "/tab", "/payments/{id}": "/payments/{id}", "api.example.com/": "api.example.com/", "/payments/7": "other", "": "other"} {
		if got := m.route(name); got != want {
			t.Errorf("%q is counted as %q, want %q", name, got, want)
		}
	}
}

// abandonedStore has records that wait for somebody to settle them.
type abandonedStore struct{ storeurl.Store }

func (abandonedStore) Health(context.Context) (everonce.Health, error) {
	return everonce.Health{Claimed: 1, Abandoned: 5}, nil
}

// What an alert waits for is counted: what passed unprotected, what could not be kept, and a store that begins to fail.
func TestMetricsOfWhatIsRare(t *testing.T) {
	m := newMetrics([]string{"/a"})
	m.served(httponce.Served{Route: "/a", FailedOpen: true})
	m.served(httponce.Served{Route: "/a", Panicked: true})
	m.served(httponce.Served{Route: "/a", Status: http.StatusCreated, Outcome: everonce.NotRecorded})
	m.End(t.Context(), everonce.Event{Outcome: everonce.NotRecorded, LeaseLost: true, RenewFailures: 2, Retries: 3})
	s := &Server{metrics: m, log: slog.New(slog.DiscardHandler), store: abandonedStore{}}
	s.swept(everonce.PurgeResult{Records: 4}, everonce.ErrStore)
	s.count(t.Context(), abandonedStore{})
	w := httptest.NewRecorder()
	m.handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", http.NoBody))
	for _, line := range []string{
		`everonce_proxy_failed_open_total{route="/a"} 1`,
		`everonce_proxy_not_recorded_total{route="/a"} 1`,
		`everonce_proxy_requests_total{code="none",outcome="failed_open",route="/a"} 1`,
		`everonce_proxy_requests_total{code="none",outcome="aborted",route="/a"} 1`,
		`everonce_store_errors_total 1`,
		`everonce_leases_lost_total 1`,
		`everonce_lease_renew_failures_total 2`,
		`everonce_store_retries_total 3`,
		`everonce_purged_records_total 4`,
		`everonce_janitor_errors_total 1`,
		`everonce_records{state="abandoned"} 5`,
	} {
		if !strings.Contains(w.Body.String(), "\n"+line+"\n") {
			t.Errorf("/metrics has no line %s", line)
		}
	}
}

// The reference has every figure, and none that is not there.
func TestMetricsReference(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "..", "..", "docs", "reference", "proxy.md"))
	if err != nil {
		t.Fatal(err)
	}
	told := map[string]bool{}
	for _, m := range regexp.MustCompile("(?m)^\\| `(everonce_[a-z_]+)`").FindAllStringSubmatch(string(text), -1) {
		told[m[1]] = true
	}
	names := newMetrics(nil).names
	for _, name := range names {
		if !told[name] {
			t.Errorf("docs/reference/proxy.md has no row of %s", name)
		}
	}
	if len(told) != len(names) {
		t.Errorf("docs/reference/proxy.md has %d figures, there are %d", len(told), len(names))
	}
}

// The how-to's alerts are about figures that there are, and those that count what is rare are there before it happens.
func TestMonitorHowTo(t *testing.T) {
	rules := block(t, "monitor-an-http-api.md", "yaml")
	m := newMetrics([]string{"POST /payments"})
	m.counted(everonce.Health{})
	w := httptest.NewRecorder()
	m.handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", http.NoBody))
	shown := regexp.MustCompile(`everonce_[a-z_]+`).FindAllString(rules, -1)
	for _, name := range shown {
		if !regexp.MustCompile(`(?m)^` + name + `(\{.+\})? 0$`).MatchString(w.Body.String()) {
			t.Errorf("an alert is about %s, which is not shown from the beginning on", name)
		}
	}
	if len(shown) < 5 {
		t.Errorf("found %d figures only in %q", len(shown), rules)
	}
	if !strings.Contains(w.Body.String(), `everonce_proxy_failed_open_total{route="/payments"} 0`) {
		t.Error("a configured route is not shown from the beginning on")
	}
}

// discard is the log of who does not look at it.
var discard = slog.New(slog.DiscardHandler)

// block returns the first block of a how-to in that language.
func block(t *testing.T, page, language string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "..", "..", "docs", "how-to", page))
	if err != nil {
		t.Fatal(err)
	}
	_, found, _ := strings.Cut(string(text), "\n```"+language+"\n")
	found, _, _ = strings.Cut(found, "\n```\n")
	return found
}

// downStore cannot be reached.
type downStore struct{ *memstore.Store }

func (downStore) Get(context.Context, everonce.GetRequest) (everonce.GetResult, error) {
	return everonce.GetResult{}, fmt.Errorf("%w: postgres://proxy:hunter2@db", everonce.ErrStore)
}

func TestReadiness(t *testing.T) {
	up, down := newReadiness(memstore.New(nil), discard), newReadiness(downStore{memstore.New(nil)}, discard)
	if err := up.check(t.Context()); err != nil {
		t.Error(err)
	}
	if err := down.check(t.Context()); err == nil {
		t.Error("ready without a store")
	}
	up.draining.Store(true)
	if err := up.check(t.Context()); err == nil {
		t.Error("ready while draining")
	}
}

// Whoever asks whether the proxy is ready is not told what its store says, which may have an address or more in it.
func TestReadinessHidesWhatTheStoreSays(t *testing.T) {
	s := &Server{metrics: newMetrics(nil), ready: newReadiness(downStore{memstore.New(nil)}, discard)}
	w := httptest.NewRecorder()
	s.admin().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/readyz", http.NoBody))
	if got := w.Body.String(); w.Code != http.StatusServiceUnavailable || got != "the store cannot be reached\n" {
		t.Errorf("%d %q", w.Code, got)
	}
}

// fullStore takes no writes while it is full.
type fullStore struct {
	*memstore.Store
	full   bool
	writes int
}

func (f *fullStore) CheckWrite(ctx context.Context) error {
	f.writes++
	if f.full {
		return fmt.Errorf("%w: %w: disk I/O error", everonce.ErrStore, everonce.ErrStoreFull)
	}
	return ctx.Err()
}

// Ready is who can write a claim: a store that only answers reads is not enough. While it takes writes, one is tried now and then;
// once it has refused one, at each question, and the log says why, once.
func TestReadyIsWhoCanWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		store := &fullStore{Store: memstore.New(nil)}
		s := &Server{metrics: newMetrics(nil), ready: newReadiness(store, slog.New(slog.NewTextHandler(&log, nil)))}
		ask := func(wantStatus int, wantBody string, wantWrites int) {
			t.Helper()
			w := httptest.NewRecorder()
			s.admin().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/readyz", http.NoBody))
			if w.Code != wantStatus || w.Body.String() != wantBody || store.writes != wantWrites {
				t.Errorf("%d %q after %d writes, want %d %q after %d", w.Code, w.Body, store.writes, wantStatus, wantBody, wantWrites)
			}
		}
		ask(200, "ok\n", 1)
		store.full = true
		time.Sleep(writeEvery - time.Nanosecond)
		ask(200, "ok\n", 1)
		time.Sleep(time.Nanosecond)
		ask(503, "the store takes no writes\n", 2)
		ask(503, "the store takes no writes\n", 3)
		if got := log.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, "disk I/O error") {
			t.Errorf("the log has %q, want why, once", got)
		}
		store.full = false
		ask(200, "ok\n", 4)
		ask(200, "ok\n", 4)
		if got := log.String(); strings.Count(got, "\n") != 2 || !strings.Contains(got, "ready again") {
			t.Errorf("the log has %q, want that it is ready again", got)
		}
	})
}

// hungWrites answers what is read, and no write.
type hungWrites struct{ *memstore.Store }

func (hungWrites) CheckWrite(ctx context.Context) error {
	<-ctx.Done()
	return ctx.Err()
}

// Whoever asks may have less time than the store: the log says why all the same, once, whether it does not answer or cannot be reached.
func TestWhyItIsNotReadyIsInTheLog(t *testing.T) {
	for want, store := range map[error]everonce.Store{errNoWrites: hungWrites{memstore.New(nil)}, errUnreachable: hungStore{memstore.New(nil)}} {
		synctest.Test(t, func(t *testing.T) {
			var log strings.Builder
			ready := newReadiness(store, slog.New(slog.NewTextHandler(&log, nil)))
			for range 3 {
				ctx, cancel := context.WithTimeout(t.Context(), readyWithin/2)
				if err := ready.check(ctx); !errors.Is(err, want) {
					t.Errorf("%v, want %v", err, want)
				}
				cancel()
			}
			if got := log.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, want.Error()) {
				t.Errorf("the log has %q, want %q, once", got, want)
			}
		})
	}
}

// While one asks a store that hangs, another waits, within its own time.
func TestReadinessIsAskedOneByOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ready := newReadiness(hungWrites{memstore.New(nil)}, discard)
		go ready.check(t.Context()) //nolint:errcheck // the other one is looked at
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), readyWithin/2)
		defer cancel()
		if err := ready.check(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		time.Sleep(readyWithin)
	})
}

// hungStore does not answer.
type hungStore struct{ *memstore.Store }

func (hungStore) Get(ctx context.Context, _ everonce.GetRequest) (everonce.GetResult, error) {
	<-ctx.Done()
	return everonce.GetResult{}, ctx.Err()
}

// A store that does not answer is one that cannot be reached, and whoever asks is told so in time.
func TestReadinessWaitsForNoStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ready, begun := newReadiness(hungStore{memstore.New(nil)}, discard), time.Now()
		if err := ready.check(t.Context()); err == nil || time.Since(begun) != readyWithin {
			t.Errorf("%v after %v", err, time.Since(begun))
		}
	})
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
	for name, args := range map[string][]string{"the client waits": nil, "the client was answered": {"--answer-within=1ms"}} {
		t.Run(name, func(t *testing.T) {
			began, finish := make(chan struct{}), make(chan struct{})
			up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				close(began)
				<-finish
				io.WriteString(w, "done")
			}))
			t.Cleanup(up.Close)
			db := filepath.Join(t.TempDir(), "proxy.db")
			p := startBefore(t, up.URL, append(args, "--store=sqlite:"+db, "--fingerprint-ignore-host")...)
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
			if args != nil {
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
			if args == nil {
				if a := <-answered; a != (answer{http.StatusOK, "done"}) {
					t.Errorf("the client got %+v", a)
				}
			}
			again := startBefore(t, up.URL, "--store=sqlite:"+db, "--fingerprint-ignore-host")
			res, body := send(t, "POST", again.url+"/", "", "Idempotency-Key", "k")
			if res.Header.Get("Idempotent-Replayed") != "true" || body != "done" {
				t.Errorf("after a restart: %d %q", res.StatusCode, body)
			}
		})
	}
}

// Asked a second time, or when its time is over, it ends without those that still run, and says so.
func TestProxyDoesNotDrainForEver(t *testing.T) {
	for name, hurry := range map[string]func(*proxied){
		"asked again":      func(p *proxied) { close(p.now) },
		"its time is over": func(*proxied) {},
	} {
		t.Run(name, func(t *testing.T) {
			began, finish := make(chan struct{}), make(chan struct{})
			defer close(finish)
			drain := "--drain=1h"
			if name != "asked again" {
				drain = "--drain=50ms"
			}
			p := start(t, func(http.ResponseWriter, *http.Request) {
				close(began)
				<-finish
			}, drain)
			gone := make(chan error)
			go func() {
				r, err := http.NewRequest(http.MethodPost, p.url+"/", nil)
				if err == nil {
					r.Header.Set("Idempotency-Key", "k")
					_, err = http.DefaultClient.Do(r)
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

// Work whose client was answered before it ended is waited for, too, and told of where the time is over.
func TestProxyWaitsForWorkWithoutAClient(t *testing.T) {
	p := start(t, (&counting{}).ServeHTTP, "--drain=50ms")
	p.running.Start(t.Context(), everonce.Op{})
	p.stop()
	if <-p.ended; !errors.Is(p.err, ErrNotDrained) {
		t.Errorf("it ended with %v", p.err)
	}
}

// A listener that breaks ends the proxy, and not without a word.
func TestProxyEndsWhenItsListenerDoes(t *testing.T) {
	c := configOf(t, "--listen=127.0.0.1:0", "--admin=none", "--store=memory:", "--upstream=http://127.0.0.1:1")
	s, err := New(t.Context(), c, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.publicLn.Close(); err != nil {
		t.Fatal(err)
	}
	if err := s.Run(t.Context(), nil); !errors.Is(err, net.ErrClosed) {
		t.Errorf("it ended with %v", err)
	}
}
