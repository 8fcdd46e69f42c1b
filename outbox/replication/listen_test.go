package replication_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/internal/testserver"
	"github.com/everonce/everonce/outbox"
	"github.com/everonce/everonce/outbox/replication"
	"github.com/everonce/everonce/store/pgxstore"
)

// TestReplication runs on a server of its own: a slot is made when the transactions of the whole server have ended, and some
// tests change the server's settings.
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

// database is an outbox in a schema of its own.
type database struct {
	pool     *pgxpool.Pool
	receiver *everonce.TxReceiver[pgx.Tx]
	box      *outbox.Outbox[pgx.Tx]
}

func newDatabase(t testing.TB, url string) *database {
	t.Helper()
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	name := "r_" + strings.ToLower(rand.Text()[:16])
	config.ConnConfig.RuntimeParams["search_path"] = name
	d := new(database)
	if d.pool, err = pgxpool.NewWithConfig(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.pool.Close)
	d.must(t, "CREATE SCHEMA "+name)
	d.must(t, "CREATE TABLE other (n bigint)")
	store, err := pgxstore.New(d.pool, nil)
	if err != nil {
		t.Fatal(err)
	}
	if d.receiver, err = everonce.NewTxReceiver(store, nil); err != nil {
		t.Fatal(err)
	}
	if err := store.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	d.box = d.outbox(t, &outbox.Options{NoAnnounce: true})
	if err := d.box.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	return d
}

func (d *database) outbox(t testing.TB, opts *outbox.Options) *outbox.Outbox[pgx.Tx] {
	t.Helper()
	box, err := outbox.New(d.receiver, opts)
	if err != nil {
		t.Fatal(err)
	}
	return box
}

func (d *database) must(t testing.TB, text string, args ...any) {
	t.Helper()
	if _, err := d.pool.Exec(context.Background(), text, args...); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
}

func ask[T any](t testing.TB, d *database, text string, args ...any) (answer T) {
	t.Helper()
	if err := d.pool.QueryRow(context.Background(), text, args...).Scan(&answer); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return answer
}

// publish commits an event.
func (d *database) publish(t testing.TB) {
	t.Helper()
	if err := d.receiver.InTx(t.Context(), d.insert); err != nil {
		t.Fatal(err)
	}
}

func (d *database) insert(ctx context.Context, tx pgx.Tx) error {
	return d.box.Publish(ctx, tx, outbox.Event{Topic: "orders"})
}

// begin leaves a transaction open that has inserted an event.
func (d *database) begin(t testing.TB) pgx.Tx {
	t.Helper()
	tx, err := d.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
	if err := d.insert(t.Context(), tx); err != nil {
		t.Fatal(err)
	}
	return tx
}

// until waits for a condition, which it asks again and again: that of a server, which tells nobody.
func until(t testing.TB, what string, holds func() bool) {
	t.Helper()
	for end := time.After(20 * time.Second); !holds(); {
		select {
		case <-time.After(5 * time.Millisecond):
		case <-end:
			t.Fatalf("%s: it did not come about", what)
		}
	}
}

// ear is a listener under test.
type ear struct {
	t     testing.TB
	woken chan struct{}
	stop  func()
	ended chan error

	mu  sync.Mutex
	all []replication.Status
}

// listening runs Listen until the test ends, or stop is called.
func (d *database) listening(t testing.TB, opts *replication.Options) *ear {
	t.Helper()
	e := &ear{t: t, woken: make(chan struct{}, 1000), ended: make(chan error, 1)}
	set := replication.Options{Heartbeat: 20 * time.Millisecond, CheckEvery: 20 * time.Millisecond}
	if opts != nil {
		set = *opts
	}
	set.Log = slog.New(slog.DiscardHandler)
	set.Observe = func(s replication.Status) {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.all = append(e.all, s)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		e.ended <- replication.Listen(ctx, d.pool.Config().ConnConfig, d.box.Table(), func() { e.woken <- struct{}{} }, &set)
	}()
	e.stop = func() { cancel(); <-done }
	t.Cleanup(e.stop)
	return e
}

// ready waits for the wake at the beginning.
func (e *ear) ready() *ear {
	e.t.Helper()
	e.wake("the connection")
	return e
}

func (e *ear) wake(after string) {
	e.t.Helper()
	select {
	case <-e.woken:
	case err := <-e.ended:
		e.t.Fatalf("no wake after %s; it ended: %v", after, err)
	case <-time.After(20 * time.Second):
		e.t.Fatalf("no wake after %s; it stands so: %+v", after, e.status())
	}
}

func (e *ear) end() error {
	e.t.Helper()
	select {
	case err := <-e.ended:
		return err
	case <-time.After(20 * time.Second):
		e.t.Fatalf("it does not end; it stands so: %+v", e.status())
		return nil
	}
}

func (e *ear) status() replication.Status {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.all) == 0 {
		return replication.Status{}
	}
	return e.all[len(e.all)-1]
}

// passed waits until the server may forget all that has been written by now.
func (d *database) passed(t testing.TB, slot string) {
	t.Helper()
	now := ask[string](t, d, "SELECT pg_current_wal_lsn()::text")
	until(t, "the slot advances", func() bool {
		return ask[bool](t, d, "SELECT count(*) = 1 FROM pg_replication_slots WHERE slot_name = $1 AND confirmed_flush_lsn >= $2::text::pg_lsn", slot, now)
	})
}

func (d *database) slots(t testing.TB) int {
	t.Helper()
	return ask[int](t, d, "SELECT count(*) FROM pg_replication_slots")
}

// Neither a transaction that is rolled back, which leaves a gap in the sequence, nor the marks of relays, nor other tables
// wake anybody; and each commit of an event does.
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
	until(t, "it is told how little is held back", func() bool { s := e.status(); return s.Listening && s.Err == nil && s.Retained < 1<<20 })
}

// sink notes the IDs of what was published.
type sink struct {
	mu  sync.Mutex
	ids map[string]int
}

func (s *sink) Publish(_ context.Context, events []outbox.Event) []error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ids == nil {
		s.ids = make(map[string]int)
	}
	for i := range events {
		s.ids[events[i].ID]++
	}
	return nil
}

// await waits for n events, and fails if one came twice.
func (s *sink) await(t testing.TB, n int) {
	t.Helper()
	until(t, fmt.Sprint(n, " events"), func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		for id, times := range s.ids {
			if times > 1 {
				t.Fatalf("%s was published %d times", id, times)
			}
		}
		return len(s.ids) >= n
	})
}

// relaying runs a relay until the test ends, or stop is called.
func (d *database) relaying(t testing.TB, box *outbox.Outbox[pgx.Tx], to outbox.Publisher, opts outbox.RelayOptions) (relay *outbox.Relay, stop func()) {
	t.Helper()
	relay, err := box.Relay(to, &opts)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- relay.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(stop)
	return relay, stop
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

// The server cuts the connection: there is a new one, with a slot of its own, and a wake for what committed meanwhile.
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
	var told bool
	for _, s := range e.all {
		told = told || !s.Listening && s.Err != nil
	}
	if !told {
		t.Error("nobody was told")
	}
}

// A temporary slot goes with its connection, a permanent one stays, and can then be read beside an open transaction.
func testKindsOfSlots(t *testing.T, d *database) {
	d.listening(t, nil).ready().stop()
	until(t, "the temporary slot is gone", func() bool { return d.slots(t) == 0 })

	opts := &replication.Options{Slot: "everonce_kept"}
	d.listening(t, opts).ready().stop()
	if d.slots(t) != 1 {
		t.Fatal("the permanent slot is gone")
	}
	open := d.begin(t)
	e := d.listening(t, opts).ready()
	if err := open.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	e.wake("a commit")
	e.stop()
	d.dropSlot(t, opts.Slot)
}

func (d *database) dropSlot(t testing.TB, slot string) {
	t.Helper()
	until(t, "the slot is free", func() bool {
		return ask[bool](t, d, "SELECT NOT active FROM pg_replication_slots WHERE slot_name = $1", slot)
	})
	d.must(t, "SELECT pg_drop_replication_slot($1)", slot)
}

// Of two listeners of one slot, one waits for the other.
func testTakesTurns(t *testing.T, d *database) {
	opts := &replication.Options{Slot: "everonce_shared"}
	first := d.listening(t, opts).ready()
	second := d.listening(t, opts)
	until(t, "the second is refused", func() bool { return second.status().Err != nil })
	first.stop()
	second.wake("the end of the first")
	second.stop()
	d.dropSlot(t, opts.Slot)
}

// A slot that holds back too much is dropped, with an alarm, also while it is still being made; polling goes on.
func testHoldsBackTooMuch(t *testing.T, d *database) {
	to := new(sink)
	d.relaying(t, d.box, to, outbox.RelayOptions{NoListen: true, Poll: 20 * time.Millisecond})
	for i, slot := range []string{"", "everonce_greedy"} {
		e := d.listening(t, &replication.Options{Slot: slot, MaxRetained: 1 << 20, CheckEvery: 20 * time.Millisecond}).ready()
		open := d.begin(t)
		d.must(t, "INSERT INTO other SELECT * FROM generate_series(1, 50000)")
		if err := e.end(); !errors.Is(err, replication.ErrRetained) {
			t.Fatalf("it ended with %v", err)
		}
		if s := e.status(); s.Listening || !errors.Is(s.Err, replication.ErrRetained) || s.Retained <= 1<<20 {
			t.Errorf("it stands so: %+v", s)
		}
		until(t, "the slot is gone", func() bool { return d.slots(t) == 0 })

		making := d.listening(t, &replication.Options{Slot: slot, MaxRetained: 1 << 20, CheckEvery: 20 * time.Millisecond})
		until(t, "the slot is being made", func() bool { return d.slots(t) == 1 })
		d.must(t, "INSERT INTO other SELECT * FROM generate_series(1, 50000)")
		if err := making.end(); !errors.Is(err, replication.ErrRetained) {
			t.Fatalf("while it was made it ended with %v", err)
		}
		until(t, "the half made slot is gone", func() bool { return d.slots(t) == 0 })
		if err := open.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
		d.publish(t)
		to.await(t, 2*(i+1))
	}
}

// What happened to a permanent slot while nobody listened does not matter: it is made anew.
func testSlotGivenUp(t *testing.T, d *database) {
	opts := &replication.Options{Slot: "everonce_idle", MaxRetained: 1 << 20}
	fill := func() {
		d.must(t, "INSERT INTO other SELECT * FROM generate_series(1, 50000)")
		d.must(t, "SELECT pg_switch_wal()")
	}
	for _, by := range []string{"the server", "the listener"} {
		d.listening(t, opts).ready().stop()
		if by == "the server" {
			d.setting(t, "max_slot_wal_keep_size = '1MB'")
			fill()
			fill()
			d.must(t, "CHECKPOINT")
			if s := ask[string](t, d, "SELECT wal_status FROM pg_replication_slots"); s != "lost" {
				t.Fatal("the slot is ", s)
			}
			d.setting(t, "max_slot_wal_keep_size = -1")
		} else {
			fill()
		}
		e := d.listening(t, opts).ready()
		d.publish(t)
		e.wake("a commit after the slot was given up by " + by)
		e.stop()
		d.dropSlot(t, opts.Slot)
	}
}

func (d *database) setting(t testing.TB, text string) {
	t.Helper()
	d.must(t, "ALTER SYSTEM SET "+text)
	d.must(t, "SELECT pg_reload_conf()")
	name, value, _ := strings.Cut(text, " = ")
	until(t, text, func() bool {
		return ask[string](t, d, "SELECT current_setting($1)", name) == strings.Trim(value, "'")
	})
}

// Somebody drops the publication, and events are inserted before it is there again, of which a permanent slot knows.
func testPublicationMadeAnew(t *testing.T, d *database) {
	opts := &replication.Options{Slot: "everonce_renewed"}
	e := d.listening(t, opts).ready()
	d.must(t, "DROP PUBLICATION "+ask[string](t, d, "SELECT pubname FROM pg_publication_tables WHERE schemaname = current_schema()"))
	d.publish(t)
	e.wake("the publication was made anew")
	until(t, "it listens", func() bool { return e.status().Listening })
	d.publish(t)
	e.wake("a commit")
	e.stop()

	d.must(t, "CREATE PUBLICATION another FOR TABLE other")
	e = d.listening(t, &replication.Options{Publication: "another"})
	if err := e.end(); !errors.Is(err, replication.ErrRefused) || !strings.Contains(err.Error(), `ALTER PUBLICATION "another" ADD TABLE`) {
		t.Error(err)
	}
	d.dropSlot(t, opts.Slot)
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
	_, stop := d.relaying(t, box, to, outbox.RelayOptions{NoListen: true, Poll: 20 * time.Millisecond})
	some(part)
	to.await(t, part/2)
	_, next := d.relaying(t, box, to, outbox.RelayOptions{Poll: time.Hour})
	some(part)
	stop()
	to.await(t, part)
	relay, last := d.relaying(t, box, to, outbox.RelayOptions{NoListen: true, Poll: time.Hour})
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
	d.relaying(t, box, to, outbox.RelayOptions{NoListen: true, Poll: 20 * time.Millisecond})
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

// Missing rights and a missing table are told at once.
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
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
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

// A server without logical decoding is told at once, in words.
func testLevel(t *testing.T, server *testserver.Server) {
	d := newDatabase(t, server.URL)
	d.must(t, "ALTER SYSTEM SET wal_level = replica")
	server.Restart()
	e := newDatabase(t, server.URL).listening(t, nil)
	if err := e.end(); !errors.Is(err, replication.ErrRefused) || !strings.Contains(err.Error(), "set wal_level = logical") {
		t.Errorf("it ended with %v", err)
	}
}
