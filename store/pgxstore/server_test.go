package pgxstore_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/everonce/everonce/internal/testing/testserver"
)

// server is one that a test has for itself, and may change.
type server struct {
	*testserver.Server
	t *testing.T
}

func startServer(t *testing.T) *server {
	t.Helper()
	return &server{testserver.Start(t, "postgres"), t}
}

// reach makes of a connection to the server of all tests one to this server.
func (s *server) reach(config *pgx.ConnConfig) {
	s.t.Helper()
	own, err := pgx.ParseConfig(s.URL)
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
	noErr(s.t, os.WriteFile(filepath.Join(s.Dir(), "data", "standby.signal"), nil, 0o644)) //nolint:gosec // the server's user reads it
	s.Restart()
}
