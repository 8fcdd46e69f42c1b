package proxy

import (
	"errors"
	"log/slog"
	"net/http"
	"net/url"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/everonce/everonce/cmd/everonce/internal/proxy/config"
)

// Every option of the middleware and the handler has a setting of the proxy, except those listed here.
func TestEveryOptionIsASetting(t *testing.T) {
	args := []string{
		"--required", "--key-json=/key", "--key-pattern=.+", "--unknown=reexecute", "--save=409=released", "--wait=1s", "--deadline=1s", "--answer-within=1s",
		"--end-with-client", "--fail-open", "--echo-key", "--problem-base=https://example.com/problems/", "--profile=stripe", "--compare-headers=Content-Type", "--allow-headers=X-A",
	}
	c := configOf(t, args...)
	c.Routes = map[string]config.Route{"/a": c.Route}
	s := &Server{conf: c, log: slog.New(slog.DiscardHandler)}
	opts, err := s.options()
	if err != nil {
		t.Fatal(err)
	}
	none := map[string]string{
		"Name":      "a route is named by its pattern",
		"Reconcile": "the proxy cannot ask the service",
		"KeyRule":   "the proxy publishes no policy",
		"KeyFrom":   "a setting is no function",
	}
	for _, v := range []reflect.Value{reflect.ValueOf(*opts), reflect.ValueOf(opts.Route), reflect.ValueOf(opts.Routes["/a"])} {
		for i := range v.NumField() {
			name := v.Type().Field(i).Name
			if why, ok := none[name]; v.Field(i).IsZero() != ok {
				t.Errorf("%s.%s: %v (%s)", v.Type(), name, v.Field(i), why)
			}
		}
	}
	if opts.MaxStillRunning != 1024 || opts.MaxWaiting != 256 || opts.MaxBodyMemory != 64<<20 || opts.MaxSpool != 1<<30 || opts.RetryAfter != 5*time.Second {
		t.Errorf("the defaults are not the library's: %+v", opts)
	}
	for arg, want := range map[string]time.Duration{"--required": 5 * time.Second, "--wait=0s": -1} {
		s.conf = configOf(t, arg)
		if o, err := s.options(); err != nil || o.Wait != want {
			t.Errorf("%s: Wait is %v, want %v", arg, o.Wait, want)
		}
	}
	s.conf = configOf(t, "--max-still-running=7", "--max-waiting=8", "--key-header=X-Key")
	if o, err := s.options(); err != nil || o.MaxStillRunning != 7 || o.MaxWaiting != 8 || o.KeyHeader != "X-Key" {
		t.Errorf("%+v", o)
	}
}

// Every option of the upstream's handler has a setting too, and a client's connection gets the timeouts of its
// settings.
func TestEveryOptionOfTheUpstreamIsASetting(t *testing.T) {
	ca, _ := writePair(t, t.TempDir(), "upstream")
	s := &Server{log: slog.New(slog.DiscardHandler), conf: configOf(t,
		"--key-header=X-Key", "--upstream-key=downstream", "--upstream-host", "--trust-forwarded", "--upstream-connect=1s", "--upstream-idle=2s", "--upstream-max-idle=3",
		"--upstream-ca="+ca, "--problem-base=https://example.com/problems/", "--profile=stripe")}
	opts, err := s.upstreamOptions(&url.URL{Scheme: "https", Host: "x"})
	if err != nil {
		t.Fatal(err)
	}
	for v, i := reflect.ValueOf(*opts), 0; i < v.NumField(); i++ {
		if v.Field(i).IsZero() {
			t.Errorf("%s is not set", v.Type().Field(i).Name)
		}
	}
	if opts.ConnectTimeout != time.Second || opts.IdleTimeout != 2*time.Second || opts.MaxIdle != 3 || opts.KeyHeader != "X-Key" {
		t.Errorf("%+v", opts)
	}
	s.conf = configOf(t, "--upstream-idle=0s")
	if opts, err = s.upstreamOptions(&url.URL{Scheme: "https", Host: "x"}); err != nil || opts.IdleTimeout >= 0 || opts.DownstreamKey || opts.UpstreamHost || opts.TrustForwarded || opts.TLS != nil {
		t.Errorf("by default, and with no connection used twice: %+v, %v", opts, err)
	}
	p := startBefore(t, "http://127.0.0.1:1", "--client-idle=7m", "--header-timeout=3s")
	for name, srv := range map[string]*http.Server{"public": p.public, "private": p.private} {
		if srv.IdleTimeout != 7*time.Minute || srv.ReadHeaderTimeout != 3*time.Second {
			t.Errorf("%s: %v, %v", name, srv.IdleTimeout, srv.ReadHeaderTimeout)
		}
	}
}

// A key that does not match is rejected before anything is sent, and is not repeated anywhere; a header with another
// name may carry keys.
func TestProxyKeyPattern(t *testing.T) {
	service := &counting{}
	p := start(t, service.ServeHTTP, "--key-pattern=[0-9a-f]{4}", "--key-header=X-Key")
	for key, want := range map[string]int{"secret-key": http.StatusBadRequest, "00af": http.StatusCreated, `"00af"`: http.StatusCreated} {
		res, body := send(t, "POST", p.url+"/", "", "X-Key", key)
		if res.StatusCode != want || strings.Contains(body, "secret") || want == http.StatusBadRequest && !strings.Contains(body, "X-Key: it must match [0-9a-f]{4}.") {
			t.Errorf("%s: %d %s", key, res.StatusCode, body)
		}
	}
	if n := service.count(); n != 1 {
		t.Errorf("the service was called %d times, want 1", n)
	}
	if strings.Contains(p.log.String(), "secret") {
		t.Errorf("the log has the key: %s", p.log.String())
	}
}

// A key may be in the body, where some SDKs put it: it is passed on as it came, once.
func TestProxyKeyInTheBody(t *testing.T) {
	service := &counting{}
	p := start(t, service.ServeHTTP, "--key-json=/idempotency_key", "--methods=POST,PUT")
	for i, want := range []string{"", "true"} {
		for _, method := range []string{"POST", "PUT"} {
			res, body := send(t, method, p.url+"/v2/payments", `{"idempotency_key":"secret","amount":1}`, "Content-Type", "application/json")
			if res.StatusCode != http.StatusCreated || res.Header.Get("Idempotent-Replayed") != want {
				t.Errorf("%s, request %d: %d %v %s", method, i, res.StatusCode, res.Header, body)
			}
		}
	}
	if res, body := send(t, "POST", p.url+"/v2/payments", `{"idempotency_key":1}`, "Content-Type", "application/json"); res.StatusCode != http.StatusBadRequest || !strings.Contains(body, "/idempotency_key in the JSON body: it is not a string.") {
		t.Errorf("a number: %d %s", res.StatusCode, body)
	}
	for range 2 {
		if res, body := send(t, "POST", p.url+"/v2/payments", `{"amount":1}`, "Content-Type", "application/json"); res.StatusCode != http.StatusCreated || res.Header.Get("Idempotent-Replayed") != "" {
			t.Errorf("without a key: %d %v %s", res.StatusCode, res.Header, body)
		}
	}
	if n := service.count(); n != 4 {
		t.Errorf("the service was called %d times, want 4", n)
	}
	if strings.Contains(p.log.String(), "secret") {
		t.Errorf("the log has the key: %s", p.log.String())
	}
	for want, args := range map[string][]string{"key-json contradicts upstream-key": {"--key-json=/a", "--upstream-key=downstream"}, `key-json: "a" is no JSON pointer`: {"--key-json=a"}} {
		c := configOf(t, append(args, "--listen=127.0.0.1:0", "--upstream=http://127.0.0.1:1", "--store=memory:")...)
		if err := Check(c, slog.New(slog.DiscardHandler)); !errors.Is(err, config.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v", args, err)
		}
	}
}

// The problems of the proxy, of the middleware and of an upstream that does not answer have the configured base.
// Retry-After is set if the proxy itself cannot continue.
func TestProxyProblemBaseAndRetryAfter(t *testing.T) {
	const base = "https://example.com/problems/"
	p := startBefore(t, "http://127.0.0.1:1", "--problem-base="+base, "--retry-after=90s", "--required")
	for name, headers := range map[string][]string{"missing-key": nil, "upstream-unreachable": {"Idempotency-Key", "k"}} {
		if res, body := send(t, "POST", p.url+"/", "", headers...); !strings.Contains(body, `"type":"`+base+name+`"`) || !strings.Contains(res.Header.Get("Link"), "<"+base+name+">") {
			t.Errorf("%s: %d %v %s", name, res.StatusCode, res.Header, body)
		}
	}
	t.Setenv("TMPDIR", filepath.Join(t.TempDir(), "nowhere"))
	large := strings.Repeat("x", 1100<<10)
	if res, body := send(t, "POST", p.url+"/", large, "Idempotency-Key", "k"); res.StatusCode != http.StatusServiceUnavailable || res.Header.Get("Retry-After") != "90" {
		t.Errorf("without room for a body: %d %v %s", res.StatusCode, res.Header, body)
	}
}

// Proxies with different prefixes share a database and no records; the store gets the schema too, though this one
// supports none.
func TestProxyTablePrefixAndSchema(t *testing.T) {
	service := &counting{}
	store := "--store=sqlite:" + filepath.Join(t.TempDir(), "proxy.db")
	for i, prefix := range []string{"a_", "b_", "a_"} {
		p := start(t, service.ServeHTTP, store, "--table-prefix="+prefix, "--compare-ignore-host") // each has its own port
		res, body := send(t, "POST", p.url+"/", "", "Idempotency-Key", "k")
		if replayed := res.Header.Get("Idempotent-Replayed") != ""; res.StatusCode != http.StatusCreated || replayed != (i == 2) {
			t.Errorf("start %d, prefix %s: %d %v %s", i, prefix, res.StatusCode, res.Header, body)
		}
	}
	if n := service.count(); n != 2 {
		t.Errorf("the service was called %d times, want 2", n)
	}
	c := configOf(t, "--listen=127.0.0.1:0", "--upstream=http://127.0.0.1:1", store, "--schema=own")
	if err := Check(c, slog.New(slog.DiscardHandler)); !errors.Is(err, config.ErrInvalid) || !strings.Contains(err.Error(), "schema") {
		t.Errorf("a schema for SQLite: %v", err)
	}
}
