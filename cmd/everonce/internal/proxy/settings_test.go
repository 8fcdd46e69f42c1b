package proxy

import (
	"log/slog"
	"net/http"
	"reflect"
	"strings"
	"testing"

	"github.com/everonce/everonce/cmd/everonce/internal/proxy/config"
)

// What the middleware and the handler may be told in a program, the proxy may be told by a setting, but for what is none.
func TestEveryOptionIsASetting(t *testing.T) {
	args := []string{
		"--required", "--key-pattern=.+", "--unknown=reexecute", "--save=409=released", "--wait=1s", "--deadline=1s", "--answer-within=1s",
		"--end-with-client", "--fail-open", "--echo-key", "--fingerprint-headers=Content-Type", "--allow-headers=X-A",
	}
	c := configOf(t, args...)
	c.Routes = map[string]config.Route{"/a": c.Route}
	s := &Server{conf: c, log: slog.New(slog.DiscardHandler)}
	opts, err := s.options(nil)
	if err != nil {
		t.Fatal(err)
	}
	none := map[string]string{
		"Name":        "a route is named by its pattern",
		"Reconcile":   "there is nobody to ask",
		"ProblemBase": "the pages are this project's",
		"RetryAfter":  "the default",
	}
	for _, v := range []reflect.Value{reflect.ValueOf(*opts), reflect.ValueOf(opts.Route), reflect.ValueOf(opts.Routes["/a"])} {
		for i := range v.NumField() {
			name := v.Type().Field(i).Name
			if why, ok := none[name]; v.Field(i).IsZero() != ok {
				t.Errorf("%s.%s: %v (%s)", v.Type(), name, v.Field(i), why)
			}
		}
	}
	if opts.MaxStillRunning != 1024 || opts.MaxWaiting != 256 || opts.MaxSpool != 1<<30 {
		t.Errorf("the defaults are not the library's: %+v", opts)
	}
	s.conf = configOf(t, "--max-still-running=7", "--max-waiting=8", "--key-header=X-Key")
	if o, err := s.options(nil); err != nil || o.MaxStillRunning != 7 || o.MaxWaiting != 8 || o.KeyHeader != "X-Key" {
		t.Errorf("%+v", o)
	}
}

// A key that does not match is refused before anything is sent, and is told to nobody; a header of another name may carry keys.
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
