package proxy

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"

	"github.com/everonce/everonce/cmd/everonce/internal/proxy/config"
	"github.com/everonce/everonce/cmd/everonce/internal/proxy/principal"
)

// The settings of the matched route decide the principal, however the path is spelled: an answer goes to no other
// client, and the same client may spell the path differently.
func TestPrincipalOfEverySpelling(t *testing.T) {
	service := &counting{}
	up := httptest.NewServer(service)
	t.Cleanup(up.Close)
	c := configOf(t, "--listen=127.0.0.1:0", "--admin=none", "--store=memory:", "--upstream="+up.URL, "--principal=none")
	strict := c.Route
	strict.Principal = "header:X-Tenant"
	c.Routes = map[string]config.Route{"/payments/{id}": strict}
	s, err := New(t.Context(), c, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- s.Run(ctx, nil) }()
	public, _ := s.Addrs()
	for i, path := range []string{"/payments/1", "//payments/1", "/payments/./1", "/x/../payments/1", "/%70ayments/1", "/payments//1"} {
		for _, tenant := range []string{"a", "b"} {
			res, body := send(t, "POST", "http://"+public+path, "", "Idempotency-Key", "k"+strconv.Itoa(i), "X-Tenant", tenant)
			if res.StatusCode != http.StatusCreated || res.Header.Get("Idempotent-Replayed") != "" {
				t.Errorf("%s, tenant %s: %d %q %v", path, tenant, res.StatusCode, body, res.Header)
			}
		}
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if n := service.count(); n != 12 {
		t.Errorf("the service was called %d times, want 12", n)
	}
}

// The service gets the same identifying header as the proxy, and no other: it would otherwise act for an unknown sender
// on an operation that is recorded as somebody's.
func TestWhatTellsTheSenderIsPassedOn(t *testing.T) {
	got := make(chan http.Header, 1)
	p := start(t, func(_ http.ResponseWriter, r *http.Request) { got <- r.Header })
	for name, passes := range map[string]bool{
		"Authorization": true, "Cookie": true, "X-Api-Key": true, "X-Tenant": true, "From": true, "Origin": true, "X-Forwarded-User": true,
		"Connection": false, "Http2-Settings": false, "Keep-Alive": false, "Proxy-Authenticate": false, "Proxy-Authorization": false, "Proxy-Connection": false, "Te": false, "Upgrade": false,
	} {
		send(t, "POST", p.url+"/", "", name, "hidden", "Idempotency-Key", name)
		if _, passed := (<-got)[name]; passed != passes {
			t.Errorf("%s is passed on: %v, want %v", name, passed, passes)
		}
		if _, err := principal.New("header:"+name, nil, false); err == nil != passes {
			t.Errorf("%s may tell the sender: %v, want %v", name, err == nil, passes)
		}
	}
}
