package proxy

import (
	"errors"
	"log/slog"
	"net"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// A port that is taken is found before the store is opened: it leaves no file behind, and binds none to an identity secret.
func TestAPortThatIsTakenLeavesNoStore(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close() //nolint:errcheck // nobody has connected
	db := filepath.Join(t.TempDir(), "proxy.db")
	for name, args := range map[string][]string{
		"listen": {"--listen=" + taken.Addr().String(), "--admin=none"},
		"admin":  {"--listen=127.0.0.1:0", "--admin=" + taken.Addr().String()},
	} {
		c := configOf(t, append(args, "--store=sqlite:"+db, "--upstream=http://127.0.0.1:1")...)
		if s, err := New(t.Context(), c, slog.New(slog.DiscardHandler)); s != nil || !errors.Is(err, syscall.EADDRINUSE) || !strings.HasPrefix(err.Error(), name+": ") {
			t.Errorf("%s: %v", name, err)
		}
		if files, err := filepath.Glob(db + "*"); err != nil || len(files) > 0 {
			t.Errorf("%s: there is %v (%v)", name, files, err)
		}
	}
}
