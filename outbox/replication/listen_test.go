package replication_test

import (
	"context"
	"crypto/rand"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/internal/testserver"
	"github.com/everonce/everonce/outbox"
	"github.com/everonce/everonce/outbox/replication"
)

// TestReplication runs on a separate server: a slot is created when the transactions of the whole server have ended,
// and some tests change the server's settings.
func TestReplication(t *testing.T) {
	server := testserver.Start(t, "postgres")
	for _, tc := range []struct {
		name string
		test func(t *testing.T, d *database)
	}{
		{"hears commits only", testHearsCommitsOnly},
		{"lets WAL go", testLetsWALGo},
		{"open transaction", testOpenTransaction},
		{"lost connection", testLostConnection},
		{"kinds of slots", testKindsOfSlots},
		{"one slot, two listeners", testTakesTurns},
		{"holds back too much", testHoldsBackTooMuch},
		{"slot given up", testSlotGivenUp},
		{"publication made anew", testPublicationMadeAnew},
		{"all ways in turn", testAllWaysInTurn},
		{"no announcements", testNoAnnouncements},
		{"rights", testRights},
	} {
		t.Run(tc.name, func(t *testing.T) { tc.test(t, newDatabase(t, server.URL)) })
	}
	t.Run("wal_level", func(t *testing.T) { testLevel(t, server) }) // the last: it leaves the server so
}

// Neither a transaction that is rolled back, which leaves a gap in the sequence, nor the marks of relays, nor other
// tables wake anybody; and each commit of an event does.
func testHearsCommitsOnly(t *testing.T, d *database) {
	e := d.listening(t, nil).ready()
	if err := d.begin(t).Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	d.must(t, "INSERT INTO other VALUES (1)")
	d.passed(t, e.status().Slot)
	if n := len(e.woken); n != 0 {
		t.Fatalf("%d wakes for nothing", n)
	}
	d.publish(t)
	e.wake("a commit")
	d.must(t, "UPDATE everonce_outbox SET state = 4, done_at = 1")
	d.must(t, "DELETE FROM everonce_outbox")
	d.passed(t, e.status().Slot)
	if n := len(e.woken); n != 0 {
		t.Fatalf("%d wakes by a relay", n)
	}
	for range 3 {
		d.publish(t)
		e.wake("a further commit")
	}
	e.stop()
	if err := e.end(); err != nil {
		t.Error(err)
	}
}

// While nothing is published and others write, the slot holds nothing back.
func testLetsWALGo(t *testing.T, d *database) {
	e := d.listening(t, nil).ready()
	for range 5 {
		d.must(t, "INSERT INTO other SELECT * FROM generate_series(1, 20000)")
		d.must(t, "CHECKPOINT") // it writes the running transactions, from which on a slot may forget
	}
	d.passed(t, e.status().Slot)
	until(t, "it reports how little is held back", func() bool { s := e.status(); return s.Listening && s.Err == nil && s.Retained < 1<<20 })
}

// An event whose transaction stays open while later ones commit is published when it commits.
func testOpenTransaction(t *testing.T, d *database) {
	to := new(sink)
	relay, _ := d.relaying(t, d.box, to, outbox.RelayOptions{NoListen: true, Poll: time.Hour})
	e := d.listening(t, nil).ready()
	open := d.begin(t)
	for n := 1; n <= 3; n++ {
		d.publish(t)
		e.wake("a commit beside an open transaction")
		relay.Wake()
		to.await(t, n)
	}
	if err := open.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	e.wake("the commit of the open transaction")
	relay.Wake()
	to.await(t, 4)
}

// The server cuts the connection: there is a new one, with a new slot, and a wake for the commits in between.
func testLostConnection(t *testing.T, d *database) {
	e := d.listening(t, nil).ready()
	first := e.status().Slot
	if !ask[bool](t, d, "SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE slot_name = $1", first) {
		t.Fatal("it was gone already")
	}
	e.wake("the new connection")
	until(t, "it listens", func() bool { return e.status().Listening })
	if second := e.status().Slot; second == first {
		t.Errorf("the slot is %s again", second)
	}
	until(t, "the first slot is gone", func() bool { return d.slots(t) == 1 })
	d.publish(t)
	e.wake("a commit on the new connection")
	e.mu.Lock()
	defer e.mu.Unlock()
	if !slices.ContainsFunc(e.all, func(s replication.Status) bool { return !s.Listening && s.Err != nil }) {
		t.Error("no wake")
	}
}

// Transactions publish while relays that hear in different ways relieve each other: each event is published, once.
func testAllWaysInTurn(t *testing.T, d *database) {
	to := new(sink)
	const writers, each = 20, 15
	box := d.outbox(t, nil) // it announces
	var writing sync.WaitGroup
	turn := make(chan struct{}, writers*each)
	for range writers {
		writing.Go(func() {
			for range each {
				<-turn
				err := d.receiver.InTx(context.Background(), func(ctx context.Context, tx pgx.Tx) error {
					return box.Publish(ctx, tx, outbox.Event{Topic: "orders"})
				})
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	some := func(n int) {
		for range n {
			turn <- struct{}{}
		}
	}
	const part = writers * each / 5
	const lease = 5 * time.Second // of events whose claim was on its way when its relay was stopped
	_, stop := d.relaying(t, box, to, outbox.RelayOptions{NoListen: true, Poll: 20 * time.Millisecond, Lease: lease})
	some(part)
	to.await(t, part/2)
	_, next := d.relaying(t, box, to, outbox.RelayOptions{Poll: time.Hour, Lease: lease})
	some(part)
	stop()
	to.await(t, part)
	relay, last := d.relaying(t, box, to, outbox.RelayOptions{NoListen: true, Poll: time.Hour, Lease: lease})
	some(part)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- replication.Listen(ctx, d.pool.Config().ConnConfig, box.Table(), relay.Wake, nil)
	}()
	until(t, "it listens", func() bool { return d.slots(t) == 1 })
	next()
	some(part)
	to.await(t, 3*part)
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	d.relaying(t, box, to, outbox.RelayOptions{NoListen: true, Poll: 20 * time.Millisecond, Lease: lease})
	last()
	some(part)
	writing.Wait()
	to.await(t, writers*each)
	until(t, "nothing waits", func() bool {
		s, err := box.Backlog().Stats(t.Context())
		return err == nil && s.Waiting == 0 && s.InHand == 0
	})
	to.await(t, writers*each)
}

// With NoAnnounce, the last statement of a transaction is not NOTIFY.
func testNoAnnouncements(t *testing.T, d *database) {
	for _, none := range []bool{true, false} {
		d.box = d.outbox(t, &outbox.Options{NoAnnounce: none})
		pid := d.begin(t).Conn().PgConn().PID()
		last := ask[string](t, d, "SELECT query FROM pg_stat_activity WHERE pid = $1", int(pid))
		if strings.Contains(last, "pg_notify") == none {
			t.Errorf("NoAnnounce is %v: the last statement is %s", none, last)
		}
	}
}

// Missing privileges and a missing table fail at once.
func testRights(t *testing.T, d *database) {
	role := "r_" + strings.ToLower(rand.Text()[:16])
	d.must(t, "CREATE ROLE "+role+" LOGIN PASSWORD 'secret'")
	t.Cleanup(func() {
		d.must(t, "DROP OWNED BY "+role)
		d.must(t, "DROP ROLE "+role)
	})
	d.must(t, "DO $$ BEGIN EXECUTE 'GRANT USAGE ON SCHEMA '||current_schema()||' TO "+role+"'; END $$")
	config := d.pool.Config().ConnConfig
	config.User, config.Password = role, "secret"
	listen := func(table string, opts *replication.Options) error {
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
		defer cancel()
		return replication.Listen(ctx, config, table, cancel, opts)
	}
	if err := listen(d.box.Table(), nil); !errors.Is(err, replication.ErrRefused) {
		t.Errorf("not the owner: %v", err)
	}
	d.must(t, "CREATE PUBLICATION readymade FOR TABLE everonce_outbox")
	opts := &replication.Options{Publication: "readymade"}
	if err := listen(d.box.Table(), opts); !errors.Is(err, replication.ErrRefused) {
		t.Errorf("without REPLICATION: %v", err)
	}
	d.must(t, "ALTER ROLE "+role+" REPLICATION")
	if err := listen(d.box.Table(), opts); err != nil {
		t.Errorf("with REPLICATION: %v", err)
	}
	if err := listen("nowhere", nil); !errors.Is(err, replication.ErrRefused) {
		t.Errorf("no table: %v", err)
	}
	for _, wrong := range []*replication.Options{{Slot: "a; DROP"}, {MaxRetained: -1}} {
		if err := listen(d.box.Table(), wrong); !errors.Is(err, everonce.ErrInvalidArgument) {
			t.Errorf("%+v: %v", wrong, err)
		}
	}
}

// On a server without logical decoding Listen fails at once, and its error says why.
func testLevel(t *testing.T, server *testserver.Server) {
	d := newDatabase(t, server.URL)
	d.must(t, "ALTER SYSTEM SET wal_level = replica")
	server.Restart()
	e := newDatabase(t, server.URL).listening(t, nil)
	if err := e.end(); !errors.Is(err, replication.ErrRefused) || !strings.Contains(err.Error(), "set wal_level = logical") {
		t.Errorf("it ended with %v", err)
	}
}
