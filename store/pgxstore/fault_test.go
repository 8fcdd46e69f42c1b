package pgxstore_test

import (
	"context"
	"database/sql"
	"errors"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/internal/testing/netcut"
	"github.com/everonce/everonce/internal/testing/testserver"
	"github.com/everonce/everonce/store/pgxstore"
)

// line is a connection to the server that a test can cut.
type line struct{ netcut.Line }

func (l *line) dial(config *pgx.ConnConfig) {
	var d net.Dialer
	config.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := d.DialContext(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return &begun{Conn: conn, to: conn, line: l, known: make(chan struct{})}, nil
	}
}

// begun is a connection whose first message shows what it is for. After a lost answer pgx sends a cancellation at some
// later time on a separate connection, which a test does not mean to cut.
//
// It may be read from before anything was sent: pgx does so behind a write that takes its time.
type begun struct {
	net.Conn
	line  *line
	once  sync.Once
	known chan struct{}
	to    net.Conn // when it is known
}

func (c *begun) Write(b []byte) (int, error) {
	const cancellation = "\x04\xd2\x16\x2e" // its code, behind its length
	c.once.Do(func() {
		if len(b) < 8 || string(b[4:8]) != cancellation {
			c.to = c.line.Over(c.Conn)
		}
		close(c.known)
	})
	return c.to.Write(b)
}

func (c *begun) Read(b []byte) (int, error) {
	<-c.known
	return c.to.Read(b)
}

func (c *begun) Close() error {
	c.once.Do(func() { close(c.known) })
	return c.to.Close()
}

// The answer to a commit is lost, before or after the server has done it. The store says that it does not
// know, and the claim tells which it was.
func TestLostCommit(t *testing.T) {
	t.Parallel()
	for _, cut := range []struct {
		name      string
		how       netcut.Cut
		committed bool
	}{{"before", netcut.Before, false}, {"after", netcut.After, true}} {
		t.Run(cut.name, func(t *testing.T) {
			t.Parallel()
			t.Run("pgx", func(t *testing.T) {
				t.Parallel()
				var l line
				testLostCommit(t, newPgx(t, setup{config: l.dial, conns: 1}), &l, cut.how, cut.committed)
			})
			t.Run("sql", func(t *testing.T) {
				t.Parallel()
				var l line
				testLostCommit(t, newSQL(t, setup{config: l.dial, conns: 1}), &l, cut.how, cut.committed)
			})
		})
	}
}

// warmUp makes the only connection prepare the statements of a transaction, so that what it sends next is
// the statements and not their preparation.
func warmUp[Tx any](t *testing.T, h *handle[Tx]) {
	t.Helper()
	receiver, err := everonce.NewTxReceiver(h.store, nil)
	noErr(t, err)
	for _, opts := range [][]everonce.CallOption{nil, {everonce.Optimistic()}} {
		key := everonce.Key{Scope: "warm-up", ID: random(t) + map[bool]string{true: "optimistic", false: "claim first"}[opts != nil]}
		_, err := everonce.Transact(t.Context(), receiver, key, func(ctx context.Context, tx Tx) (string, error) {
			return "", h.effect(ctx, tx, "warm-up")
		}, opts...)
		noErr(t, err)
	}
}

func testLostCommit[Tx any](t *testing.T, h *handle[Tx], l *line, how netcut.Cut, committed bool) {
	ctx := t.Context()
	warmUp(t, h)
	claim := txClaimOf(testKey)
	tx, res, err := h.store.Begin(ctx, driver.BeginRequest{Claim: &claim})
	rec := decided(t, res, err, driver.DecideClaimed).Record
	noErr(t, h.effect(ctx, tx.Tx(), "charge"))
	req := driver.CommitRequest{}
	if h.pipes {
		done := completionOf(&rec, "v")
		req.Complete = &done
	} else { // only the commit itself is to be cut
		noErr(t, errOf(tx.Complete(ctx, completionOf(&rec, "v"))))
	}
	l.Cut(how)
	_, err = tx.Commit(ctx, req)
	if class := h.store.ClassifyTx(err); class != driver.TxErrorCommitLost {
		t.Fatalf("the commit answers %v, of class %d, want TxErrorCommitLost", err, class)
	}
	if !errors.Is(err, driver.ErrStore) {
		t.Errorf("%v is not ErrStore", err)
	}
	want := driver.DecideClaimed
	if committed {
		want = driver.DecideReplay
	}
	// Until the server has noticed that its client is gone, the old transaction conflicts with the claim.
	deadline := time.Now().Add(10 * time.Second)
	for {
		again := txClaimOf(testKey)
		tx, res, err := h.store.Begin(ctx, driver.BeginRequest{Claim: &again})
		noErr(t, err)
		if tx != nil {
			noErr(t, tx.Rollback(ctx))
		}
		if res.Decision == driver.DecideInProgress && time.Now().Before(deadline) {
			continue
		}
		if res.Decision != want {
			t.Errorf("the claim says %v, want %v", res.Decision, want)
		}
		break
	}
	if n := h.effects(t, "charge"); (n == 1) != committed {
		t.Errorf("%d effects, committed: %v", n, committed)
	}
}

// Transact resolves a lost commit without help: the effect exists once, whatever became of the first commit.
func TestTransactResolvesALostCommit(t *testing.T) {
	t.Parallel()
	for name, how := range map[string]netcut.Cut{"before": netcut.Before, "after": netcut.After} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var l line
			h := newPgx(t, setup{config: l.dial, conns: 1})
			receiver, err := everonce.NewTxReceiver(h.store, nil)
			noErr(t, err)
			for _, opts := range [][]everonce.CallOption{nil, {everonce.Optimistic()}} {
				key := everonce.Key{Scope: "lost", ID: map[bool]string{true: "optimistic", false: "claim first"}[opts != nil]}
				warmUp(t, h) // the connection is a new one after each cut
				runs := 0
				res, err := everonce.Transact(t.Context(), receiver, key, func(ctx context.Context, tx pgx.Tx) (string, error) {
					runs++
					if err := h.effect(ctx, tx, key.ID); err != nil {
						return "", err
					}
					if runs == 1 {
						l.Cut(how)
					}
					return "receipt", nil
				}, opts...)
				noErr(t, err)
				if res.Value != "receipt" || h.effects(t, key.ID) != 1 {
					t.Errorf("%s: %q after %d effects", key.ID, res.Value, h.effects(t, key.ID))
				}
				if again := how == netcut.Before; again != (runs == 2) {
					t.Errorf("%s: the work ran %d times", key.ID, runs)
				}
			}
		})
	}
}

// A claim whose answer is lost is found again by its nonce, and can be released by it.
func TestLostClaim(t *testing.T) {
	t.Parallel()
	t.Run("pgx", func(t *testing.T) {
		t.Parallel()
		var l line
		testLostClaim(t, newPgx(t, setup{config: l.dial, conns: 1}), &l)
	})
	t.Run("sql", func(t *testing.T) {
		t.Parallel()
		var l line
		testLostClaim(t, newSQL(t, setup{config: l.dial, conns: 1}), &l)
	})
}

func testLostClaim[Tx any](t *testing.T, h *handle[Tx], l *line) {
	ctx := t.Context()
	lose := func(key everonce.Key) driver.ClaimRequest {
		t.Helper()
		_, err := h.store.Get(ctx, driver.GetRequest{ID: key.RecordID()}) // a connection is at hand
		noErr(t, err)
		warm := claimOf(everonce.Key{Scope: "warm", ID: key.ID})
		_, err = h.store.Claim(ctx, warm) // and the statement is prepared on it
		noErr(t, err)
		req := claimOf(key)
		l.Cut(netcut.After)
		if _, err := h.store.Claim(ctx, req); !errors.Is(err, driver.ErrStore) {
			t.Fatalf("the claim answers %v", err)
		}
		return req
	}
	first := everonce.Key{Scope: "lost", ID: "repeated"}
	req := lose(first)
	res, err := h.store.Claim(ctx, req)
	if rec := decided(t, res, err, driver.DecideClaimed).Record; rec.Attempt != 1 || rec.Nonce != req.Nonce {
		t.Errorf("the repeated claim is attempt %d", rec.Attempt)
	}
	second := everonce.Key{Scope: "lost", ID: "released"}
	req = lose(second)
	_, err = h.store.Release(ctx, driver.ReleaseRequest{ID: req.ID, Scope: req.Scope, Name: req.Name, Nonce: req.Nonce, State: driver.StateReleased, Lifetime: everonce.ForWeb()})
	noErr(t, err)
	res, err = h.store.Claim(ctx, claimOf(second))
	decided(t, res, err, driver.DecideClaimed)
}

// The server ends the connection between claim and completion.
func TestConnectionKilled(t *testing.T) {
	t.Parallel()
	both(t, setup{}, testKilled[pgx.Tx], testKilled[*sql.Tx])
}

func testKilled[Tx any](t *testing.T, h *handle[Tx]) {
	ctx := t.Context()
	claim := txClaimOf(testKey)
	tx, res, err := h.store.Begin(ctx, driver.BeginRequest{Claim: &claim})
	rec := decided(t, res, err, driver.DecideClaimed).Record
	noErr(t, h.effect(ctx, tx.Tx(), "charge"))
	noErr(t, h.exec(ctx, tx.Tx(), "SET application_name = 'kill_"+h.schema+"'"))
	if n := number(t, "SELECT count(pg_terminate_backend(pid, 10000)) FROM pg_stat_activity WHERE application_name = 'kill_'||$1::text", h.schema); n != 1 {
		t.Fatalf("%d connections were killed", n)
	}
	done := completionOf(&rec, "v")
	_, err = tx.Commit(ctx, driver.CommitRequest{Complete: &done})
	if err == nil {
		t.Fatal("the commit of a dead connection succeeds")
	}
	if n := h.effects(t, "charge"); n != 0 {
		t.Errorf("%d effects", n)
	}
	receiver, err := everonce.NewTxReceiver(h.store, nil)
	noErr(t, err)
	runs := 0
	_, err = everonce.Transact(ctx, receiver, testKey, func(ctx context.Context, tx Tx) (string, error) {
		runs++
		if runs == 1 {
			noErr(t, h.exec(ctx, tx, "SET application_name = 'kill_"+h.schema+"'"))
			number(t, "SELECT count(pg_terminate_backend(pid, 10000)) FROM pg_stat_activity WHERE application_name = 'kill_'||$1::text", h.schema)
			return "", nil // the work did not notice; the commit will
		}
		return "v", h.effect(ctx, tx, "charge")
	})
	noErr(t, err)
	if n := h.effects(t, "charge"); n != 1 || runs != 2 {
		t.Errorf("%d effects of %d runs", n, runs)
	}
}

// A refusal of the database is reported with its own class, and nothing runs.
func TestRefusals(t *testing.T) {
	t.Parallel()
	both(t, setup{pending: true}, testMissingTable[pgx.Tx], testMissingTable[*sql.Tx])
	t.Run("read only", func(t *testing.T) {
		t.Parallel()
		schema := newSchema(t)
		newPgx(t, setup{schema: schema})
		readOnly := func(c *pgx.ConnConfig) { c.RuntimeParams["default_transaction_read_only"] = "on" }
		s := setup{schema: schema, config: readOnly, pending: true}
		both(t, s, testReadOnly[pgx.Tx], testReadOnly[*sql.Tx])
	})
	t.Run("denied", func(t *testing.T) {
		t.Parallel()
		schema := newSchema(t)
		newPgx(t, setup{schema: schema})
		role := "role_" + schema
		mustExec(t, "CREATE ROLE "+role+" LOGIN PASSWORD 'secret-of-the-role'")
		mustExec(t, "GRANT USAGE ON SCHEMA "+schema+" TO "+role)
		mustExec(t, "GRANT SELECT ON "+schema+".everonce_meta TO "+role)
		t.Cleanup(func() { mustExec(t, "DROP OWNED BY "+role); mustExec(t, "DROP ROLE "+role) })
		login := func(c *pgx.ConnConfig) { c.User, c.Password = role, "secret-of-the-role" }
		s := setup{schema: schema, config: login, pending: true}
		// not both: its subtests run after this function's cleanup is registered, and with it
		testDenied(t, newPgx(t, s))
		testDenied(t, newSQL(t, s))
		wrong := func(c *pgx.ConnConfig) { c.User, c.Password = role, "another-secret" }
		testLoginRefused(t, newPgx(t, setup{schema: schema, config: wrong, pending: true}))
		testLoginRefused(t, newSQL(t, setup{schema: schema, config: wrong, pending: true}))
	})
	t.Run("statement timeout", func(t *testing.T) {
		t.Parallel()
		both(t, setup{config: func(c *pgx.ConnConfig) { c.RuntimeParams["statement_timeout"] = "200" }}, testStatementTimeout[pgx.Tx], testStatementTimeout[*sql.Tx])
	})
	t.Run("no listener", func(t *testing.T) {
		t.Parallel()
		closed := func(c *pgx.ConnConfig) {
			c.Port = uint16(testserver.FreePort(t))
			c.Fallbacks = nil
		}
		schema := newSchema(t)
		testUnreachable(t, newPgx(t, setup{schema: schema, config: closed, pending: true}))
		testUnreachable(t, newSQL(t, setup{schema: schema, config: closed, pending: true}))
	})
}

// everyCall calls what a store has, and returns the errors by name.
func everyCall[Tx any](ctx context.Context, h *handle[Tx]) map[string]error {
	errs := map[string]error{}
	req := claimOf(testKey)
	rec := driver.Record{ID: req.ID, Token: 1, Nonce: req.Nonce}
	_, errs["Claim"] = h.store.Claim(ctx, req)
	_, errs["Complete"] = h.store.Complete(ctx, completionOf(&rec, "v"))
	_, errs["Release"] = h.store.Release(ctx, driver.ReleaseRequest{ID: req.ID, Token: 1, Nonce: req.Nonce, State: driver.StateReleased, Lifetime: everonce.ForWeb()})
	_, errs["Renew"] = h.store.Renew(ctx, driver.RenewRequest{ID: req.ID, Token: 1, Nonce: req.Nonce, Lease: time.Minute, Lifetime: everonce.ForWeb()})
	_, errs["SaveStep"] = h.store.SaveStep(ctx, driver.SaveStepRequest{ID: req.ID, Token: 1, Nonce: req.Nonce, Step: driver.StepRecord{Name: "s", State: driver.StepDone, Attempt: 1}})
	_, errs["Purge"] = h.store.Purge(ctx, driver.PurgeRequest{Limit: 10})
	_, errs["DeleteScope"] = h.store.DeleteScope(ctx, driver.DeleteScopeRequest{Scope: testKey.Scope})
	_, errs["Get"] = h.store.Get(ctx, driver.GetRequest{ID: req.ID})
	_, errs["List"] = h.store.List(ctx, driver.ListRequest{})
	_, errs["Health"] = h.store.Health(ctx, driver.HealthRequest{})
	txClaim := txClaimOf(testKey)
	tx, _, err := h.store.Begin(ctx, driver.BeginRequest{Claim: &txClaim})
	if errs["Begin"] = err; tx != nil {
		_ = tx.Rollback(ctx)
	}
	return errs
}

func testMissingTable[Tx any](t *testing.T, h *handle[Tx]) {
	for name, err := range everyCall(t.Context(), h) {
		if !errors.Is(err, driver.ErrSchema) || !errors.Is(err, driver.ErrStore) || !strings.Contains(err.Error(), "Migrate") {
			t.Errorf("%s without tables: %v", name, err)
		}
	}
	receiver, err := everonce.NewTxReceiver(h.store, nil)
	noErr(t, err)
	if err := receiver.Ready(t.Context()); !errors.Is(err, driver.ErrSchema) {
		t.Errorf("Ready without tables: %v", err)
	}
	noErr(t, h.store.Migrate(t.Context()))
	_, err = h.store.Claim(t.Context(), claimOf(testKey))
	noErr(t, err)
	mustExec(t, "DROP TABLE "+h.schema+".everonce_record CASCADE") // behind the store's back
	if _, err := h.store.Claim(t.Context(), claimOf(testKey)); !errors.Is(err, driver.ErrSchema) {
		t.Errorf("a claim without its table: %v", err)
	}
}

func testReadOnly[Tx any](t *testing.T, h *handle[Tx]) {
	errs := everyCall(t.Context(), h)
	for _, reads := range []string{"Get", "List", "Health"} {
		noErr(t, errs[reads])
	}
	for _, writes := range []string{"Claim", "Complete", "Release", "Renew", "SaveStep", "Purge", "DeleteScope"} {
		if err := errs[writes]; !errors.Is(err, driver.ErrStore) || !strings.Contains(err.Error(), "accepts no writes") {
			t.Errorf("%s: %v", writes, err)
		}
	}
	receiver, err := everonce.NewTxReceiver(h.store, nil)
	noErr(t, err)
	_, err = everonce.Transact(t.Context(), receiver, testKey, func(context.Context, Tx) (int, error) { return 1, nil })
	if !errors.Is(err, driver.ErrStore) {
		t.Errorf("Transact: %v", err)
	}
}

func testDenied[Tx any](t *testing.T, h *handle[Tx]) {
	t.Helper()
	for name, err := range everyCall(t.Context(), h) {
		if !errors.Is(err, driver.ErrStore) || !strings.Contains(err.Error(), "permission denied") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func testLoginRefused[Tx any](t *testing.T, h *handle[Tx]) {
	t.Helper()
	_, err := h.store.Claim(t.Context(), claimOf(testKey))
	if !errors.Is(err, driver.ErrStore) || strings.Contains(err.Error(), "another-secret") {
		t.Errorf("a refused login: %v", err)
	}
}

func testStatementTimeout[Tx any](t *testing.T, h *handle[Tx]) {
	ctx := t.Context()
	receiver, err := everonce.NewTxReceiver(h.store, nil)
	noErr(t, err)
	_, err = everonce.Transact(ctx, receiver, testKey, func(ctx context.Context, tx Tx) (int, error) {
		return 1, h.exec(ctx, tx, "SELECT pg_sleep(60)")
	})
	if err == nil || h.store.ClassifyTx(err) != driver.TxErrorOther {
		t.Errorf("the work's timeout: %v", err)
	}
	// The store's own statement gets this error where a lock is held for too long.
	res, err := h.store.Claim(ctx, claimOf(testKey))
	rec := decided(t, res, err, driver.DecideClaimed).Record
	other, err := admin(t).Begin(ctx)
	noErr(t, err)
	defer other.Rollback(ctx) //nolint:errcheck // it only holds a lock
	_, err = other.Exec(ctx, "SELECT FROM "+h.record()+" WHERE id = $1 FOR UPDATE", rec.ID[:])
	noErr(t, err)
	if _, err := h.store.Complete(ctx, completionOf(&rec, "v")); !errors.Is(err, driver.ErrStore) || !everonce.IsNotDone(pgxstore.Classify(err)) {
		t.Errorf("a completion that times out: %v", err)
	}
	noErr(t, other.Rollback(ctx))
	_, err = h.store.Complete(ctx, completionOf(&rec, "v"))
	noErr(t, err)
}

func testUnreachable[Tx any](t *testing.T, h *handle[Tx]) {
	t.Helper()
	_, err := h.store.Claim(t.Context(), claimOf(testKey))
	if !errors.Is(err, driver.ErrStore) || !everonce.IsNotDone(pgxstore.Classify(err)) {
		t.Errorf("no listener: %v", err)
	}
}

// A call whose context ends is over at once, and the store is as usable as before.
func TestCancelledCalls(t *testing.T) {
	t.Parallel()
	both(t, setup{}, testCancelled[pgx.Tx], testCancelled[*sql.Tx])
}

func testCancelled[Tx any](t *testing.T, h *handle[Tx]) {
	res, err := h.store.Claim(t.Context(), claimOf(testKey))
	rec := decided(t, res, err, driver.DecideClaimed).Record
	other, err := admin(t).Begin(t.Context())
	noErr(t, err)
	defer other.Rollback(t.Context()) //nolint:errcheck // it only holds a lock
	_, err = other.Exec(t.Context(), "SELECT FROM "+h.record()+" WHERE id = $1 FOR UPDATE", rec.ID[:])
	noErr(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	atOnce(t, "a completion whose context ends", func() {
		if _, err := h.store.Complete(ctx, completionOf(&rec, "v")); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Complete: %v", err)
		}
	})
	for name, err := range everyCall(ctx, h) {
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s under a context that is over: %v", name, err)
		}
	}
	noErr(t, other.Rollback(t.Context()))
	_, err = h.store.Complete(t.Context(), completionOf(&rec, "v"))
	noErr(t, err)
}
