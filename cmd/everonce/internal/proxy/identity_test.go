package proxy

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/everonce/everonce/cmd/everonce/internal/proxy/config"
)

// A secret that is not the store's is told at the start: /readyz would be well, and every request with a key refused.
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
		if err := begin(args...); !errors.Is(err, config.ErrInvalid) || !strings.Contains(err.Error(), "identity-secret-file") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
