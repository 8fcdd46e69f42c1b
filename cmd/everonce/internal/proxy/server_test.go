package proxy

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/everonce/everonce/cmd/everonce/internal/proxy/config"
)

// buffer is a log that several goroutines write.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// proxied is a proxy that runs for a test.
type proxied struct {
	*Server
	url, admin string
	log        *buffer
	stop       context.CancelFunc // asks it to drain
	now        chan struct{}      // ends it at once when closed
	ended      chan struct{}
	err        error // how it ended
}

// configOf reads flags.
func configOf(t *testing.T, args ...string) *config.Config {
	t.Helper()
	fs := pflag.NewFlagSet("proxy", pflag.ContinueOnError)
	config.AddFlags(fs)
	if err := fs.Parse(args); err != nil {
		t.Fatal(err)
	}
	c, _, err := config.Load(fs, nil, "")
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// start runs a proxy in front of a handler.
func start(t *testing.T, upstream http.HandlerFunc, args ...string) *proxied {
	t.Helper()
	up := httptest.NewServer(upstream)
	t.Cleanup(up.Close)
	return startBefore(t, up.URL, args...)
}

func startBefore(t *testing.T, upstream string, args ...string) *proxied {
	t.Helper()
	c := configOf(t, append([]string{"--listen=127.0.0.1:0", "--admin=127.0.0.1:0", "--store=memory:", "--upstream=" + upstream}, args...)...)
	p := &proxied{log: &buffer{}, now: make(chan struct{}), ended: make(chan struct{})}
	var err error
	if p.Server, err = New(t.Context(), c, slog.New(slog.NewJSONHandler(p.log, nil))); err != nil {
		t.Fatal(err)
	}
	public, private := p.Addrs()
	scheme := "http://"
	if c.TLSCert != "" {
		scheme = "https://"
	}
	p.url, p.admin = scheme+public, "http://"+private
	ctx, stop := context.WithCancel(context.Background())
	p.stop = stop
	go func() {
		defer close(p.ended)
		p.err = p.Run(ctx, p.now)
	}()
	t.Cleanup(func() {
		stop()
		http.DefaultClient.CloseIdleConnections()
		if <-p.ended; p.err != nil && !errors.Is(p.err, ErrNotDrained) {
			t.Error(p.err)
		}
	})
	return p
}

// send sends a request with headers: name, value, name, value.
func send(t *testing.T, method, url, body string, headers ...string) (*http.Response, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Add(headers[i], headers[i+1])
	}
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res, string(text)
}

// counting is a service that counts what it does.
type counting struct {
	mu sync.Mutex
	n  int
}

func (c *counting) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	io.Copy(io.Discard, r.Body)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n++
	w.WriteHeader(http.StatusCreated)
	io.WriteString(w, strings.Repeat("x", c.n))
}

func (c *counting) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.n
}

// A service that knows nothing of keys is called once, in every store.
func TestProxyCallsOnce(t *testing.T) {
	for _, store := range []string{"memory:", "sqlite:" + filepath.Join(t.TempDir(), "proxy.db")} {
		service := &counting{}
		p := start(t, service.ServeHTTP, "--store="+store)
		for i, marker := range []string{"", "true", "true"} {
			res, body := send(t, "POST", p.url+"/payments", "amount=1", "Idempotency-Key", "k")
			if res.StatusCode != http.StatusCreated || body != "x" || res.Header.Get("Idempotent-Replayed") != marker {
				t.Errorf("%s, answer %d: %d %q %v", store, i, res.StatusCode, body, res.Header)
			}
		}
		if n := service.count(); n != 1 {
			t.Errorf("%s: the service was called %d times, want 1", store, n)
		}
	}
}

// The settings of a route hold for it, and for no other.
func TestProxyRoutes(t *testing.T) {
	service := &counting{}
	up := httptest.NewServer(service)
	t.Cleanup(up.Close)
	c := configOf(t, "--listen=127.0.0.1:0", "--admin=none", "--store=memory:", "--upstream="+up.URL)
	strict := c.Route
	strict.Required, strict.Principal = true, "header:X-Tenant"
	c.Routes = map[string]config.Route{"POST /payments/{id}": strict}
	s, err := New(t.Context(), c, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- s.Run(ctx, nil) }()
	public, _ := s.Addrs()
	for _, tc := range []struct {
		path, tenant string
		key          string
		status       int
		marker       string
	}{
		{"/payments/1", "a", "", 400, ""},
		{"/other", "a", "", 201, ""},
		{"/payments/1", "a", "k", 201, ""},
		{"/payments/1", "a", "k", 201, "true"},
		{"/payments/2", "a", "k", 422, ""}, // one route, another path
		{"/payments/1", "b", "k", 201, ""},
		{"/payments/1", "", "k", 201, ""}, // the anonymous are a separate tenant
	} {
		headers := []string{}
		if tc.tenant != "" {
			headers = append(headers, "X-Tenant", tc.tenant)
		}
		if tc.key != "" {
			headers = append(headers, "Idempotency-Key", tc.key)
		}
		res, body := send(t, "POST", "http://"+public+tc.path, "", headers...)
		if res.StatusCode != tc.status || res.Header.Get("Idempotent-Replayed") != tc.marker {
			t.Errorf("%+v: %d %s %q", tc, res.StatusCode, body, res.Header.Get("Idempotent-Replayed"))
		}
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// A configuration that cannot work is rejected before anything is created.
func TestProxyRefusesToStart(t *testing.T) {
	db := filepath.Join(t.TempDir(), "proxy.db")
	cert, key := writePair(t, t.TempDir(), "proxy")
	for want, args := range map[string][]string{
		"upstream":   {"--upstream=localhost:9000"},
		"not a URL":  {"--upstream=http://user:hunter2@host:port"},
		"has a user": {"--upstream=http://user:hunter2@host"},
		"loopback":   {"--admin=0.0.0.0:9464"},
		"admin: ":    {"--admin=nine"},
		"listen: ":   {"--listen=8080"},
		"listen: \"127.0.0.1:99999\" is not an address":   {"--listen=127.0.0.1:99999"},
		"admin: \"127.0.0.1:99999\" is not an address":    {"--admin=127.0.0.1:99999"},
		"admin: it is the address for clients":            {"--listen=:9464", "--admin=127.0.0.1:9464"},
		"listen: \"unix:proxy.sock\" is no whole path":    {"--listen=unix:proxy.sock"},
		"listen: \"unix://run/proxy.sock\" is no whole":   {"--listen=unix://run/proxy.sock"},
		"listen: \"unix:/run/proxy.sock?x\" is no whole":  {"--listen=unix:/run/proxy.sock?x"},
		"has a path that is longer than the 103 bytes":    {"--listen=unix:/" + strings.Repeat("x", 103)},
		"upstream is no whole path to a Unix":             {"--upstream=unix:service.sock"},
		"upstream: it is the address of the proxy itself": {"--listen=unix:/run/proxy.sock", "--upstream=unix:///run/x/../proxy.sock"},
		"admin: \"unix:/run/admin.sock\" is not an":       {"--admin=unix:/run/admin.sock"},
		"upstream-ca: the upstream is not https":          {"--upstream-ca=x.pem"},
		"upstream-tls-cert and upstream-tls-key go":       {"--upstream-tls-key=x.pem", "--upstream=https://127.0.0.1:1"},
		"upstream-tls-cert: ":                             {"--upstream-tls-cert=x.pem", "--upstream-tls-key=x.pem", "--upstream=https://127.0.0.1:1"},
		"upstream-tls-cert: the upstream is not https":    {"--upstream-tls-cert=" + cert, "--upstream-tls-key=" + key},
		"upstream \"http://127.0.0.1:99999\"":             {"--upstream=http://127.0.0.1:99999"},
		"go together":                                     {"--tls-cert=x.pem"},
		"tls-cert and tls-key go together":                {"--tls-key=x.pem"},
		"tls-cert":                                        {"--tls-cert=x.pem", "--tls-key=y.pem"},
		"upstream-ca":                                     {"--upstream-ca=x.pem", "--upstream=https://127.0.0.1:1"},
		"upstream-key":                                    {"--upstream-key=downstream", "--fail-open"},
		"problem-base":                                    {"--problem-base=problems"},
	} {
		c := configOf(t, append([]string{"--listen=127.0.0.1:0", "--store=sqlite:" + db, "--upstream=http://127.0.0.1:1"}, args...)...)
		s, err := New(t.Context(), c, slog.New(slog.DiscardHandler))
		if !errors.Is(err, config.ErrInvalid) || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "hunter2") || strings.Contains(err.Error(), "everonce: ") {
			t.Errorf("%v: %v, want it to speak of %q, and of no package", args, err, want)
		}
		if s != nil {
			t.Errorf("%v: there is a server", args)
		}
	}
	unprotected := configOf(t, "--listen=127.0.0.1:0", "--store=sqlite:"+db, "--upstream=http://127.0.0.1:1")
	unprotected.Route.Methods = nil
	if _, err := New(t.Context(), unprotected, slog.New(slog.DiscardHandler)); !errors.Is(err, config.ErrInvalid) || !strings.Contains(err.Error(), "methods: empty") {
		t.Errorf("if no method takes a key: %v", err)
	}
	downstream := configOf(t, "--listen=127.0.0.1:0", "--store=sqlite:"+db, "--upstream=http://127.0.0.1:1", "--upstream-key=downstream")
	failOpen := downstream.Route
	failOpen.FailOpen = true
	downstream.Routes = map[string]config.Route{"/a": failOpen}
	if _, err := New(t.Context(), downstream, slog.New(slog.DiscardHandler)); !errors.Is(err, config.ErrInvalid) || !strings.Contains(err.Error(), `routes "/a": fail-open`) {
		t.Errorf("a route that is let through with another key: %v", err)
	}
	noCA := configOf(t, "--listen=127.0.0.1:0", "--store=sqlite:"+db, "--upstream=https://127.0.0.1:1", "--upstream-ca=server_test.go")
	if _, err := New(t.Context(), noCA, slog.New(slog.DiscardHandler)); !errors.Is(err, config.ErrInvalid) || !strings.Contains(err.Error(), "server_test.go contains no certificate") {
		t.Errorf("a file without a certificate of the upstream's: %v", err)
	}
	empty := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(empty, []byte("\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	short := filepath.Join(t.TempDir(), "short")
	if err := os.WriteFile(short, []byte("hunter2"), 0o600); err != nil {
		t.Fatal(err)
	}
	for want, args := range map[string][]string{
		"identity-secret-file":                      {"--identity-secret-file=nowhere"},
		"is empty":                                  {"--identity-secret-file=" + empty},
		"store":                                     {"--store=mysql://localhost"},
		`save has "9xx"`:                            {"--save=9xx=saved"},
		"methods: ":                                 {"--methods=post"},
		"key-header and marker are both":            {"--marker=Idempotency-Key"},
		"max-body (8388608) is above max-spool":     {"--max-spool=1MiB"},
		"key-header: \"X Key\"":                     {"--key-header=X Key"},
		"identity-secret-file has 7 bytes":          {"--identity-secret-file=" + short},
		"compare-headers: \"Lease Methods\"":        {"--compare-headers=Lease Methods"}, // what is quoted is the user's own
		"compare-json-only and compare-json-except": {"--compare-json-only=/a", "--compare-json-except=/b"},
		"compare-json-only: ":                       {"--compare-json-only=a"},
		"compare-json-except: ":                     {"--compare-json-except=a"},
		"deny-headers has \"X A\"":                  {"--deny-headers=X A"},
		"the lease is":                              {"--lease=1us"},
	} {
		c := configOf(t, append([]string{"--listen=127.0.0.1:0", "--admin=none", "--store=sqlite:" + db, "--upstream=http://127.0.0.1:1"}, args...)...)
		if _, err := New(t.Context(), c, slog.New(slog.DiscardHandler)); !errors.Is(err, config.ErrInvalid) || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "upstream") || inSettings(err.Error()) != err.Error() {
			t.Errorf("%v: %v, want it to speak of %q, by the names of settings", args, err, want)
		}
	}
	route := configOf(t, "--listen=127.0.0.1:0", "--admin=none", "--store=sqlite:"+db, "--upstream=http://127.0.0.1:1")
	r := route.Route
	r.Lease = time.Microsecond
	route.Routes = map[string]config.Route{"POST /": r}
	if _, err := New(t.Context(), route, slog.New(slog.DiscardHandler)); !errors.Is(err, config.ErrInvalid) || !strings.Contains(err.Error(), `route "POST /": the lease is 1µs`) || strings.Contains(err.Error(), "httponce") {
		t.Errorf("where the lease of a route is too short: %v", err)
	}
	if names, _ := filepath.Glob(db + "*"); len(names) > 0 {
		t.Errorf("there is %v", names)
	}
}
