package proxy

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/everonce/everonce/cmd/everonce/internal/proxy/config"
)

// The start fails with a secret that is not the store's. Otherwise /readyz would be well, and every request with a key
// would fail.
func TestProxyOfAnotherIdentitySecret(t *testing.T) {
	dir := t.TempDir()
	secret := func(name string) string {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, []byte(strings.Repeat(name, 16)), 0o600); err != nil {
			t.Fatal(err)
		}
		return "--identity-secret-file=" + file
	}
	begin := func(args ...string) error {
		args = append(args, "--listen=127.0.0.1:0", "--admin=none", "--upstream=http://127.0.0.1:1", "--store=sqlite:"+filepath.Join(dir, "proxy.db"))
		s, err := New(t.Context(), configOf(t, args...), slog.New(slog.DiscardHandler))
		if err != nil {
			return err
		}
		return s.close()
	}
	first := secret("a")
	if err := errors.Join(begin(first), begin(first)); err != nil {
		t.Fatal(err)
	}
	for name, args := range map[string][]string{"another": {secret("b")}, "none": nil} {
		if err := begin(args...); !errors.Is(err, config.ErrInvalid) || !strings.Contains(err.Error(), "identity-secret-file: not the secret of") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// The secret may come through a pipe, as a shell makes one of a command's output: it can be read once.
func TestIdentitySecretFromAPipe(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close() //nolint:errcheck // it was only read
	_, err = w.WriteString(strings.Repeat("secret", 8))
	if err := errors.Join(err, w.Close()); err != nil {
		t.Fatal(err)
	}
	s, err := New(t.Context(), configOf(t, fmt.Sprint("--identity-secret-file=/dev/fd/", r.Fd()), "--listen=127.0.0.1:0", "--admin=none",
		"--upstream=http://127.0.0.1:1", "--store=memory:"), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.close(); err != nil {
		t.Error(err)
	}
}

// With an identity secret, a reader of the store cannot guess a credential, however it was sent.
func TestIdentitySecretHidesCredentials(t *testing.T) {
	c := configOf(t)
	c.Routes = map[string]config.Route{"/a": c.Route}
	s := &Server{conf: c, log: slog.New(slog.DiscardHandler)}
	r := httptest.NewRequest(http.MethodPost, "/", http.NoBody)
	r.Header.Set("Authorization", "Bearer 7")
	names := map[string]bool{}
	for _, secret := range []string{"", strings.Repeat("a", 16), strings.Repeat("b", 16)} {
		s.secret = []byte(secret)
		opts, err := s.options()
		if err != nil {
			t.Fatal(err)
		}
		all, err := opts.Principal(r)
		if err != nil {
			t.Fatal(err)
		}
		if own, err := opts.Routes["/a"].Principal(r); err != nil || own != all {
			t.Errorf("in the route it is %s (%v), elsewhere %s", own, err, all)
		}
		names[all] = true
	}
	if len(names) != 3 {
		t.Errorf("from two secrets and no secret come %d names", len(names))
	}
}
