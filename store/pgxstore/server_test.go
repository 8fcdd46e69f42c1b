package pgxstore_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
)

// server is one that a test has for itself, and may change.
type server struct {
	t   *testing.T
	dir string
}

func startServer(t *testing.T) *server {
	t.Helper()
	dir, err := os.MkdirTemp("", "everonce-pgxstore-") //nolint:usetesting // the server may run as another user, which must reach it
	noErr(t, err)
	s := &server{t: t, dir: dir}
	t.Cleanup(func() {
		s.services("down")
		noErr(t, os.RemoveAll(dir))
	})
	s.services("up")
	return s
}

// services runs the repository's script on the server's own folder.
func (s *server) services(what string) string {
	s.t.Helper()
	cmd := exec.Command(filepath.Join("..", "..", "scripts", "services"), what, "postgres") //nolint:gosec // the arguments are this file's
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "EVERONCE_") {
			cmd.Env = append(cmd.Env, v)
		}
	}
	cmd.Env = append(cmd.Env, "EVERONCE_SERVICES_DIR="+s.dir, "EVERONCE_NO_DOCKER=1")
	var said strings.Builder
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		s.t.Fatalf("%v: %v: %s", cmd.Args, err, said.String())
	}
	return string(out)
}

// reach makes of a connection to the server of all tests one to this server.
func (s *server) reach(config *pgx.ConnConfig) {
	s.t.Helper()
	_, url, _ := strings.Cut(s.services("env"), "EVERONCE_TEST_POSTGRES_URL=")
	own, err := pgx.ParseConfig(strings.ReplaceAll(strings.TrimSpace(url), `\`, "")) // it is quoted for a shell
	noErr(s.t, err)
	config.Host, config.Port, config.User, config.Password, config.Database, config.Fallbacks = own.Host, own.Port, own.User, own.Password, own.Database, own.Fallbacks
	config.TLSConfig = own.TLSConfig
}

// set changes settings that take effect with a restart.
func (s *server) set(settings map[string]string) {
	s.t.Helper()
	pool := newPool(s.t, s.reach, 0)
	defer pool.Close()
	for name, value := range settings {
		_, err := pool.Exec(s.t.Context(), fmt.Sprintf("ALTER SYSTEM SET %s = %s", name, value))
		noErr(s.t, err)
	}
}

// becomeStandby makes a standby of the server, with the data that it has, whose primary is nowhere.
func (s *server) becomeStandby() {
	s.t.Helper()
	noErr(s.t, os.WriteFile(filepath.Join(s.dir, "postgres", "data", "standby.signal"), nil, 0o644)) //nolint:gosec // the server's user reads it
	s.restart()
}

func (s *server) restart() { s.t.Helper(); s.services("restart") }
