package httponce_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/httponce"
	"github.com/everonce/everonce/store/memstore"
)

// TestWhatADeploymentChanges: a key is used, the settings of the running API are changed, and the key comes again. The
// table is in docs/how-to/operate.md.
func TestWhatADeploymentChanges(t *testing.T) {
	t.Parallel()
	as := func(name string) httponce.Principal {
		return func(*http.Request) (string, error) { return name, nil }
	}
	named := func(name string) httponce.Route {
		return httponce.Route{Name: func(*http.Request) string { return name }}
	}
	type settings struct {
		policy    everonce.Policy
		principal httponce.Principal
		opts      httponce.Options
		status    int
		secret    string
	}
	before := settings{policy: everonce.Refuse, principal: as("alice"), opts: httponce.Options{Route: named("/charges")}, status: http.StatusCreated, secret: "0123456789abcdef"}
	const replayed, not = true, false
	for name, c := range map[string]struct {
		change func(*settings)
		first  int // the status of the first answer
		want   int
		again  bool // replayed
	}{
		"nothing":               {func(*settings) {}, 201, 201, replayed},
		"the answer":            {func(s *settings) { s.status = http.StatusAccepted }, 201, 201, replayed},
		"the route's name":      {func(s *settings) { s.opts.Route = named("/v2/charges") }, 201, 201, not},
		"the principal":         {func(s *settings) { s.principal = as("customer-7") }, 201, 201, not},
		"the key's header":      {func(s *settings) { s.opts.KeyHeader = "X-Key" }, 201, 201, not},
		"the same, required":    {func(s *settings) { s.opts.KeyHeader, s.opts.Route.Required = "X-Key", true }, 201, 400, not},
		"the fingerprint":       {func(s *settings) { s.opts.Route.Compare.IgnoreHost = true }, 201, 201, replayed},
		"the lifetime":          {func(s *settings) { s.opts.Route.Lifetime = everonce.Lifetime{Retention: 1, Remember: 1} }, 201, 201, replayed},
		"what is saved":         {func(s *settings) { s.opts.Route.Save = httponce.Save{"422": httponce.Released} }, 422, 422, replayed},
		"the lease":             {func(s *settings) { s.opts.Route.Lease = time.Hour }, 201, 201, replayed},
		"the identity secret":   {func(s *settings) { s.secret = "fedcba9876543210" }, 201, 503, not},
		"the policy of unknown": {func(s *settings) { s.policy = everonce.Reexecute }, 500, 201, not},
		"nothing, of unknown":   {func(*settings) {}, 500, 409, not},
	} {
		store := memstore.New(nil)
		serving := func(s settings) (http.Handler, *int) {
			r, err := everonce.NewReceiver(store, s.policy, &everonce.Options{IdentitySecret: []byte(s.secret)})
			if err != nil {
				t.Fatal(err)
			}
			protect, err := httponce.Middleware(r, s.principal, &s.opts)
			if err != nil {
				t.Fatal(err)
			}
			n := new(int)
			return protect(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				*n++
				w.WriteHeader(s.status)
			})), n
		}
		was, now := before, before
		was.status = c.first
		c.change(&now)
		h, _ := serving(was)
		if res := send(h, "POST", "/", "", "Idempotency-Key", "k"); res.StatusCode != c.first {
			t.Fatalf("%s: the first answer is %d", name, res.StatusCode)
		}
		h, n := serving(now)
		res := send(h, "POST", "/", "", "Idempotency-Key", "k")
		wantRuns := 0
		if c.again == not && c.want == http.StatusCreated {
			wantRuns = 1
		}
		if got := res.Header.Get("Idempotent-Replayed") == "true"; res.StatusCode != c.want || got != c.again || *n != wantRuns {
			t.Errorf("%s is changed: %d, replayed %t, the handler ran %d times; want %d, %t and %d", name, res.StatusCode, got, *n, c.want, c.again, wantRuns)
		}
	}
}
