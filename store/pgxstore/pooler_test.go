package pgxstore_test

import (
	"context"
	"database/sql"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/internal/testing/testserver"
)

// poolerConns is how many connections to the server a pooler has.
const poolerConns = 12

// pooler is a PgBouncer in transaction mode before the server: each transaction may get another of a few connections.
type pooler struct {
	port     uint16
	prepares bool // it knows prepared statements, as it does from 1.21 on
}

// through makes a client go through it.
func (p *pooler) through(mode pgx.QueryExecMode) func(*pgx.ConnConfig) {
	return func(c *pgx.ConnConfig) {
		c.Host, c.Port, c.TLSConfig, c.Fallbacks = "127.0.0.1", p.port, nil, nil
		c.DefaultQueryExecMode = mode
	}
}

func startPooler(t *testing.T) *pooler {
	t.Helper()
	program, err := exec.LookPath("pgbouncer")
	if err != nil {
		if program, err = exec.LookPath("/usr/sbin/pgbouncer"); err != nil {
			t.Fatal("pgbouncer is not on this machine: this test starts one; install the package pgbouncer")
		}
	}
	version, err := exec.Command(program, "--version").Output()
	noErr(t, err)
	var major, minor int
	if _, err := fmt.Sscanf(string(version), "PgBouncer %d.%d", &major, &minor); err != nil {
		t.Fatalf("pgbouncer --version says %q", version)
	}
	server, err := pgx.ParseConfig(serverURL(t))
	noErr(t, err)
	port := testserver.FreePort(t)
	address := fmt.Sprintf("127.0.0.1:%d", port)
	p := &pooler{port: uint16(port), prepares: major > 1 || minor >= 21} //nolint:gosec // a port
	text := fmt.Appendf(nil, `[databases]
* = host=%s port=%d user=%s password=%s
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = %d
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = %d
ignore_startup_parameters = extra_float_digits
`, server.Host, server.Port, server.User, server.Password, p.port, poolerConns)
	if p.prepares {
		text = append(text, "max_prepared_statements = 50\n"...)
	}
	config := filepath.Join(t.TempDir(), "pgbouncer.ini")
	noErr(t, os.WriteFile(config, text, 0o600))
	args := []string{config}
	if os.Geteuid() == 0 { // it does not run as root
		args = append(args, "-u", "nobody")
	}
	cmd := exec.Command(program, args...) //nolint:gosec // the test's own arguments
	noErr(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill() //nolint:errcheck // it may be gone
		_ = cmd.Wait()         //nolint:errcheck // it was killed
	})
	again := time.NewTicker(10 * time.Millisecond)
	defer again.Stop()
	for range 1000 {
		if c, err := net.DialTimeout("tcp", address, time.Second); err == nil {
			_ = c.Close() //nolint:errcheck // it answers
			return p
		}
		<-again.C
	}
	t.Fatalf("pgbouncer does not answer at %s", address)
	return nil
}

// TestConformancePooler holds the transactions of both drivers to the suite, through a pooler in transaction mode.
func TestConformancePooler(t *testing.T) {
	p := startPooler(t)
	for _, mode := range []pgx.QueryExecMode{pgx.QueryExecModeExec, pgx.QueryExecModeCacheStatement} {
		t.Run(mode.String(), func(t *testing.T) {
			if mode == pgx.QueryExecModeCacheStatement && !p.prepares {
				t.Skip("prepared statements through PgBouncer: this one is older than 1.21; scripts/newer has a newer one")
			}
			t.Run("pgx", func(t *testing.T) { conformanceTx(t, p.through(mode), variant()) })
			t.Run("sql", func(t *testing.T) { conformanceTxSQL(t, p.through(mode), variant()) })
		})
	}
}

// A pooler in transaction mode lends the settings that a neighbour has SET. The store does not depend on them.
func TestSettingsThatAPoolerLends(t *testing.T) {
	t.Parallel()
	p := startPooler(t)
	neighbour := newPool(t, p.through(pgx.QueryExecModeExec), poolerConns)
	var lending sync.WaitGroup
	lending.Add(poolerConns)
	var all sync.WaitGroup
	for range poolerConns { // every connection of the pooler, since all are in use at the same time
		all.Go(func() {
			err := pgx.BeginFunc(t.Context(), neighbour, func(tx pgx.Tx) error {
				_, err := tx.Exec(t.Context(), "SET default_transaction_isolation = serializable; SET synchronous_commit = off; SET session_replication_role = replica; "+
					"SET bytea_output = escape; SET lock_timeout = '5s'; SET statement_timeout = '30s'; SET datestyle = 'German'")
				lending.Done()
				lending.Wait()
				return err
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	s := setup{config: p.through(pgx.QueryExecModeCacheDescribe), conns: 4}
	both(t, s, testLentSettings[pgx.Tx], testLentSettings[*sql.Tx])
}

func testLentSettings[Tx any](t *testing.T, h *handle[Tx]) {
	var lent string
	noErr(t, h.query(t.Context(), "SELECT current_setting('synchronous_commit')").Scan(&lent))
	if lent != "off" {
		t.Fatalf("the pooler has lent synchronous_commit = %s", lent)
	}
	witness(t, h.schema, "everonce_record", "everonce_step")
	guarded(t, h, "lent")
	sawOnly(t, h.schema, "guarded calls", "read committed, on")
	r, err := everonce.NewTxReceiver(h.store, nil)
	noErr(t, err)
	for _, want := range []everonce.Outcome{everonce.Executed, everonce.Replayed} {
		res, err := everonce.Transact(t.Context(), r, testKey, func(ctx context.Context, tx Tx) (string, error) { return "v", h.effect(ctx, tx, "charge") })
		if err != nil || res.Outcome != want || h.effects(t, "charge") != 1 {
			t.Errorf("%v, %v, with %d effects; want %v", res.Outcome, err, h.effects(t, "charge"), want)
		}
	}
	sawOnly(t, h.schema, "Transact", "serializable, on")
	testUnrelatedKeys(t, h)
}
