package e2e

import (
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/json"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/internal/testserver"
	"github.com/everonce/everonce/store/memstore"
)

const (
	// callers deliver at once; leastInFlight of their operations are begun at each kill.
	callers       = 16
	leastInFlight = 8
	defaultCycles = 20
	// Every worker gets opsPerCycle new operations and delivers the latest window of them again. It may
	// make fewer than freeCalls calls before the gate closes: then as many new operations as there are
	// callers still need it, so that all callers come to stand before it.
	freeCalls   = 12
	opsPerCycle = freeCalls + callers
	window      = 4 * opsPerCycle
)

// cycles is how often the worker is killed: EVERONCE_E2E_CYCLES in the soak.
func cycles(t *testing.T) int {
	t.Helper()
	s := os.Getenv("EVERONCE_E2E_CYCLES")
	switch {
	case s == "" && testing.Short():
		return defaultCycles / 2
	case s == "":
		return defaultCycles
	}
	n, err := strconv.Atoi(s)
	if err != nil || n < 1 {
		t.Fatalf("EVERONCE_E2E_CYCLES is %q: give a positive number", s)
	}
	return n
}

// TestKillSQLite kills a service on SQLite with SIGKILL in the middle of its work, again and again, and
// audits what took effect.
func TestKillSQLite(t *testing.T) {
	t.Parallel()
	killsSQL(t, workerSpec{SQLite: filepath.Join(t.TempDir(), "service.db")})
}

// TestKillMariaDB is the same on MariaDB.
func TestKillMariaDB(t *testing.T) {
	t.Parallel()
	killsMySQL(t, testserver.URL(t, "mariadb"))
}

// TestKillMySQL is the same on MySQL. Without a server it is skipped, and the run says so.
func TestKillMySQL(t *testing.T) {
	t.Parallel()
	url := os.Getenv("EVERONCE_TEST_MYSQL_URL")
	if url == "" {
		t.Skip("TestKillMySQL was not run: set EVERONCE_TEST_MYSQL_URL to the URL of a MySQL server")
	}
	killsMySQL(t, url)
}

func killsMySQL(t *testing.T, url string) {
	t.Helper()
	database := "e2e_" + strings.ToLower(rand.Text())
	run := func(text string) {
		db, err := mariaDB(url, "")
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		if _, err := db.ExecContext(context.Background(), text); err != nil {
			t.Error(err)
		}
	}
	run("CREATE DATABASE " + database)
	t.Cleanup(func() { run("DROP DATABASE " + database) })
	killsSQL(t, workerSpec{MariaDB: url, Schema: database})
}

// killsSQL is kills for a service on database/sql.
func killsSQL(t *testing.T, spec workerSpec) {
	t.Helper()
	ctx := context.Background()
	opened := func(fn func(*app[*sql.Tx])) {
		a, err := spec.openSQL()(ctx)
		if err != nil {
			t.Fatal(err)
		}
		defer a.close()
		fn(a)
	}
	opened(func(*app[*sql.Tx]) {}) // makes the schema; its connections are closed before anybody is killed
	res := audited{ledger: map[int]int{}}
	kills(t, spec, func() audited {
		opened(func(a *app[*sql.Tx]) {
			rows, err := a.db.QueryContext(ctx, `SELECT op, count(*) FROM ledger GROUP BY op`)
			if err != nil {
				t.Fatal(err)
			}
			defer rows.Close()
			for rows.Next() {
				var op, n int
				if err := rows.Scan(&op, &n); err != nil {
					t.Fatal(err)
				}
				res.ledger[op] = n
			}
			if err := rows.Err(); err != nil {
				t.Fatal(err)
			}
			if err := a.db.QueryRowContext(ctx, `SELECT balance FROM account`).Scan(&res.balance); err != nil {
				t.Fatal(err)
			}
		})
		return res
	}, func(settle func(everonce.Store)) {
		opened(func(a *app[*sql.Tx]) { settle(a.store) })
	})
}

// TestKillPostgres is the same on PostgreSQL.
func TestKillPostgres(t *testing.T) {
	t.Parallel()
	url, schema := newSchema(t)
	ctx := context.Background()
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(ctx)
	if _, err := conn.Exec(ctx, `SET search_path = `+schema); err != nil {
		t.Fatal(err)
	}
	kills(t, workerSpec{Postgres: url, Schema: schema}, func() audited {
		res := audited{ledger: map[int]int{}}
		rows, err := conn.Query(ctx, `SELECT op, count(*) FROM ledger GROUP BY op`)
		if err != nil {
			t.Fatal(err)
		}
		var op, n int
		if _, err := pgx.ForEachRow(rows, []any{&op, &n}, func() error { res.ledger[op] = n; return nil }); err != nil {
			t.Fatal(err)
		}
		if err := conn.QueryRow(ctx, `SELECT balance FROM account`).Scan(&res.balance); err != nil {
			t.Fatal(err)
		}
		return res
	}, func(settle func(everonce.Store)) {
		a, err := openPostgres(ctx, url, schema)
		if err != nil {
			t.Fatal(err)
		}
		defer a.close()
		settle(a.store)
	})
}

// audited is what the service's own tables say.
type audited struct {
	ledger  map[int]int // effects per operation
	balance int
}

// kills runs the cycles, then one worker to the end, settles what is unknown from the gateway's ledger,
// runs another, and audits.
func kills(t *testing.T, spec workerSpec, audit func() audited, withStore func(func(everonce.Store))) {
	n := cycles(t)
	seed := seedOf(t)
	g := newGateway(seed)
	server := httptest.NewServer(g)
	defer server.Close()
	defer g.open() // a test that fails in mid-cycle leaves calls held
	spec.Gateway, spec.Callers, spec.Lease = server.URL, callers, e2eLease
	deadline := time.Now().Add(time.Duration(n)*15*time.Second + 10*time.Minute)

	var inFlight []string
	for cycle := range n {
		spec.Seed = seed + uint64(cycle)
		spec.To = (cycle + 1) * opsPerCycle
		spec.From = max(0, spec.To-window)
		g.arm(g.draw(freeCalls))
		w := startWorker(t, spec)
		for {
			flying, held, changed := g.state()
			if flying >= leastInFlight && held >= spec.leastHeld(cycle) {
				inFlight = append(inFlight, strconv.Itoa(flying))
				break
			}
			select {
			case <-changed:
			case err := <-w.done:
				t.Fatalf("the worker ended before it was killed: %v\n%s", err, w.stderr.String())
			case <-time.After(time.Until(deadline)):
				t.Fatalf("cycle %d: %d operations in flight, %d held; it does not go on", cycle, flying, held)
			}
		}
		if err := w.cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		<-w.done
		g.open()
		g.drained(t, deadline)
	}
	t.Logf("operations in flight at each of %d kills: %s", n, strings.Join(inFlight, " "))

	ops := n * opsPerCycle
	spec.From, spec.To = 0, ops
	unknown := finish(t, g, spec, deadline)
	t.Logf("%d operations; unknown after the last kill: %d", ops, len(unknown))
	withStore(func(store everonce.Store) { settle(t, g, store, unknown) })
	if still := finish(t, g, spec, deadline); len(still) > 0 {
		t.Errorf("still unknown after they were settled: %v", still)
	}
	judge(t, g, audit(), ops)
}

// leastHeld is how many calls the gateway holds at a kill, at least. On DynamoDB, where the first one is soon followed
// by the kill, and few of the others have come so far, every second kill waits until there are some: else re-execution
// may happen to make no double.
func (s *workerSpec) leastHeld(cycle int) int {
	if s.DynamoDB != "" && cycle%2 == 1 {
		return leastInFlight
	}
	return 1
}

// finish runs a worker that is not killed, and returns the operations that it found unknown. Its leases outlast the
// delays of a busy machine: a lease that was lost would make one more.
func finish(t *testing.T, g *gateway, spec workerSpec, deadline time.Time) []int {
	t.Helper()
	g.arm(-1)
	spec.Lease = time.Minute
	w := startWorker(t, spec)
	select {
	case err := <-w.done:
		if err != nil {
			t.Fatalf("the worker failed: %v\n%s", err, w.stderr.String())
		}
	case <-time.After(time.Until(deadline)):
		_ = w.cmd.Process.Kill()
		t.Fatal("the last worker does not come to an end")
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	var unknown []int
	for op := spec.From; op < spec.To; op++ {
		switch g.outcomes[op] {
		case "unknown":
			unknown = append(unknown, op)
		case "executed", "replayed":
		default:
			t.Errorf("operation %d has the answer %q", op, g.outcomes[op])
		}
	}
	return unknown
}

// settle tells the store what the gateway's ledger says.
func settle(t *testing.T, g *gateway, store everonce.Store, unknown []int) {
	t.Helper()
	for _, op := range unknown {
		id := operationKey(op).RecordID()
		name, step, prefix := "charge", "", "refuse-"
		switch op % ways {
		case wayRefuse:
		case waySteps:
			name, step, prefix = "mail", "mail", "mail-"
		default:
			t.Errorf("operation %d is unknown, and its way has no unknown", op)
			continue
		}
		verdict := everonce.Settlement{Verdict: everonce.SettleNotDone, Step: step, By: "audit"}
		g.mu.Lock()
		happened := g.calls[prefix+downstream(t, op, name)] > 0
		g.mu.Unlock()
		if happened {
			verdict.Verdict, verdict.Encoded = everonce.SettleDone, []byte(strconv.Itoa(op))
		}
		if err := everonce.Settle(context.Background(), store, id, verdict); err != nil {
			t.Errorf("settle operation %d: %v", op, err)
		}
	}
}

// judge is the oracle: one effect per operation in every way that promises it, and doubles where
// nothing does, or the test is blind.
func judge(t *testing.T, g *gateway, got audited, ops int) {
	t.Helper()
	g.mu.Lock()
	defer g.mu.Unlock()
	charged, doubles := 0, 0
	for op := range ops {
		want := 0
		switch op % ways {
		case wayTransact, wayDoTx, wayOptimistic, waySteps:
			want = 1
		}
		charged += want
		if got.ledger[op] != want {
			t.Errorf("operation %d (way %d): %d charges in the ledger, want %d", op, op%ways, got.ledger[op], want)
		}
		switch op % ways {
		case wayReexecute:
			key := "reexecute-" + downstream(t, op, "charge")
			if g.once[key] != 1 {
				t.Errorf("operation %d: no effect at the gateway that deduplicates", op)
			}
			doubles += g.calls[key] - 1
		case wayRefuse:
			if n := g.calls["refuse-"+downstream(t, op, "charge")]; n != 1 {
				t.Errorf("operation %d: %d effects under Refuse, want 1 after its settlement", op, n)
			}
		case waySteps:
			if n := g.calls["mail-"+downstream(t, op, "mail")]; n != 1 {
				t.Errorf("operation %d: %d mails, want 1 after its settlement", op, n)
			}
		}
	}
	if len(g.undone) > 0 {
		t.Errorf("operations that were done were executed again, or unknown: %v", g.undone)
	}
	if got.balance != -charged {
		t.Errorf("the balance is %d, want %d", got.balance, -charged)
	}
	if doubles == 0 {
		t.Error("blind: re-execution made no double at the gateway that does not deduplicate")
	}
	t.Logf("%d charges in the database, %d answers, %d of them replays, %d doubles where nothing deduplicates", charged, g.answers, g.replays, doubles)
}

// downstream returns the downstream key that an operation's attempts use.
func downstream(t *testing.T, op int, name string) string {
	t.Helper()
	r, err := everonce.NewReceiver(memstore.New(nil), everonce.Refuse, nil)
	if err != nil {
		t.Fatal(err)
	}
	return r.DownstreamKey(operationKey(op), name)
}

// process is a worker that runs.
type process struct {
	cmd    *exec.Cmd
	stderr *strings.Builder
	done   chan error
}

func startWorker(t *testing.T, spec workerSpec) *process {
	t.Helper()
	raw, err := json.Marshal(spec)
	if err != nil {
		t.Fatal(err)
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p := &process{cmd: exec.Command(exe), stderr: &strings.Builder{}, done: make(chan error, 1)}
	p.cmd.Env = append(os.Environ(), workerEnv+"="+string(raw))
	p.cmd.Stderr = p.stderr
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.cmd.Process.Kill() })
	go func() { p.done <- p.cmd.Wait() }()
	return p
}

// draw returns a number below n.
func (g *gateway) draw(n int) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.rng.IntN(n)
}

// drained waits until no call of a dead worker is in the handler any more: what it did is then known.
func (g *gateway) drained(t *testing.T, deadline time.Time) {
	t.Helper()
	for {
		_, held, changed := g.state()
		if held == 0 {
			return
		}
		select {
		case <-changed:
		case <-time.After(time.Until(deadline)):
			t.Fatalf("%d calls are held for ever", held)
		}
	}
}
