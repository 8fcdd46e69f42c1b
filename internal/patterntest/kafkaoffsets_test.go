package patterntest

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/consume"
	"github.com/everonce/everonce/consume/kafkaonce"
	"github.com/everonce/everonce/store/mysqlstore"
)

// never commits at intervals: the table then has only the offsets of the transactions.
var never = kafkaonce.Options{CommitEvery: time.Hour}

func TestKafkaOffsetCommitsWithTheEffect(t *testing.T) {
	t.Parallel()
	t.Run("pgx", func(t *testing.T) { t.Parallel(); testKafkaOffsetCommitsWithTheEffect(t, onPgx(t)) })
	t.Run("postgres", func(t *testing.T) { t.Parallel(); testKafkaOffsetCommitsWithTheEffect(t, onPostgres(t)) })
	t.Run("sqlite", func(t *testing.T) { t.Parallel(); testKafkaOffsetCommitsWithTheEffect(t, onSQLite(t)) })
}

// A worker that is lost between the effect and the commit leaves neither effect nor offset. The next one begins at the
// table's offset, where the group has none: it was deleted, and counts its generations from the beginning.
func testKafkaOffsetCommitsWithTheEffect[Tx any](t *testing.T, h *handle[Tx]) {
	l := newLog(t, h, 1)
	l.send(0, "m-1", "m-2")
	worked := make(chan struct{}, 10)
	first := l.join(consume.TxSpec[struct{}, Tx]{Handle: func(ctx context.Context, tx Tx, m *consume.Message, _ struct{}) error {
		if err := h.exec(ctx, tx, "INSERT INTO effects (name) VALUES ($1)", m.ID); err != nil {
			return err
		}
		if m.ID == "m-2" {
			worked <- struct{}{}
			<-ctx.Done()
		}
		return nil
	}}, never)
	heard(t, worked)
	if next := l.next(0); next != 1 {
		t.Errorf("the table's offset is %d behind the first message, want 1", next)
	}
	l.evict()
	first.event(kafkaonce.Lost)
	if err := first.stop(); err != nil {
		t.Fatal(err)
	}
	first.wants("m-1 executed fenced=false")
	if n, next := h.number(t, "SELECT count(*) FROM effects"), l.next(0); n != 1 || next != 1 {
		t.Fatalf("%d effects, offset %d; want 1 and 1", n, next)
	}
	if _, err := l.admin.DeleteGroups(t.Context(), l.topic.Name); err != nil {
		t.Fatal(err)
	}
	l.send(0, "m-3")
	second := l.join(consume.TxSpec[struct{}, Tx]{Handle: func(ctx context.Context, tx Tx, m *consume.Message, _ struct{}) error {
		return h.exec(ctx, tx, "INSERT INTO effects (name) VALUES ($1)", m.ID)
	}}, never)
	second.wants("m-2 executed fenced=false", "m-3 executed fenced=false") // and not m-1, replayed
	if n, next := h.number(t, "SELECT count(*) FROM effects"), l.next(0); n != 3 || next != 3 {
		t.Errorf("%d effects, offset %d; want 3 and 3", n, next)
	}
	if err := second.stop(); err != nil {
		t.Fatal(err)
	}
	offsets, err := l.admin.FetchOffsets(t.Context(), l.topic.Name)
	if o, ok := offsets.Lookup(l.topic.Name, 0); err != nil || !ok || o.At != 3 {
		t.Errorf("Kafka has %v, %v; want 3", o.At, err)
	}
}

// A consumer that was paused for longer than its session, in the middle of its work, does not know that its partition
// has moved. Its next commit is rolled back.
func TestKafkaOffsetFencesAZombie(t *testing.T) {
	t.Parallel()
	h := onPgx(t)
	l := newLog(t, h, 1)
	l.send(0, "m-1")
	var line network
	begun, resume := make(chan struct{}, 1), make(chan struct{})
	skipFailed := sync.OnceFunc(func() { close(resume) })
	opts := never
	opts.Client = []kgo.Opt{kgo.Dialer(line.dial)}
	var held atomic.Bool
	insert := func(by string) consume.TxSpec[struct{}, pgx.Tx] {
		return consume.TxSpec[struct{}, pgx.Tx]{Handle: func(ctx context.Context, tx pgx.Tx, m *consume.Message, _ struct{}) error {
			if by == "zombie" && held.CompareAndSwap(false, true) {
				begun <- struct{}{}
				<-resume
			}
			return h.exec(ctx, tx, "INSERT INTO effects (name) VALUES ($1)", by)
		}}
	}
	zombie := l.join(insert("zombie"), opts)
	t.Cleanup(skipFailed)
	heard(t, begun)
	line.held.Lock()
	restore := sync.OnceFunc(line.held.Unlock)
	t.Cleanup(restore)
	second := l.join(insert("second"), never)
	second.wants("m-1 in_progress fenced=false")
	skipFailed()
	zombie.wants("m-1 failed fenced=true")
	restore()
	zombie.event(kafkaonce.Lost)
	for v := ""; v != "m-1 executed fenced=false"; v = heard(t, second.verdicts) {
	}
	if n := h.number(t, "SELECT count(*) FROM effects WHERE name = 'zombie'"); n != 0 {
		t.Errorf("%d effects of the zombie", n)
	}
	if n := h.number(t, "SELECT count(*) FROM effects"); n != 1 {
		t.Errorf("%d effects, want 1", n)
	}
}

// A rebalance in the middle of batches: what the handlers of the partition that moves have written is rolled back, and
// each message takes effect once.
func TestKafkaOffsetsInARebalance(t *testing.T) {
	t.Parallel()
	h := onPgx(t)
	l := newLog(t, h, 2)
	const each = 20
	for p := range int32(2) {
		for i := range each {
			l.send(p, fmt.Sprint(p, "-", i))
		}
	}
	begun := make(chan struct{}, 100)
	moved := make(chan struct{})
	opts := kafkaonce.Options{Workers: consume.Workers{Concurrency: 1, Batch: 8, DrainTimeout: 200 * time.Millisecond}}
	insert := func(wait bool) consume.TxSpec[struct{}, pgx.Tx] {
		return consume.TxSpec[struct{}, pgx.Tx]{HandleAll: func(ctx context.Context, tx pgx.Tx, batch []consume.Received[struct{}]) error {
			for _, r := range batch {
				if err := h.exec(ctx, tx, "INSERT INTO effects (name) VALUES ($1)", r.Message.ID); err != nil {
					return err
				}
			}
			if wait {
				begun <- struct{}{}
				select {
				case <-moved:
				case <-ctx.Done():
					return ctx.Err()
				}
			}
			return nil
		}}
	}
	first := l.join(insert(true), opts)
	heard(t, begun)
	heard(t, begun)
	second := l.join(insert(false), opts)
	first.event(kafkaonce.Revoked)
	close(moved)
	done := func() int { return h.number(t, "SELECT count(*) FROM effects") }
	for done() < 2*each {
		select {
		case <-first.verdicts:
		case <-second.verdicts:
		case <-time.After(hung):
			t.Fatalf("%d effects", done())
		}
	}
	for _, m := range []*member{first, second} {
		if err := m.stop(); err != nil {
			t.Fatal(err)
		}
	}
	if n := done(); n != 2*each || l.next(0) != each || l.next(1) != each {
		t.Errorf("%d effects, offsets %d and %d; want %d, and %d each", n, l.next(0), l.next(1), 2*each, each)
	}
}

// A database that has lost what it had committed, as after a failover, is not told to skip that. The next Run begins at
// the table's offset.
func TestKafkaOffsetsRowIsSetBack(t *testing.T) {
	t.Parallel()
	h := onSQLite(t)
	l := newLog(t, h, 1)
	l.send(0, "m-1", "m-2", "m-3")
	spec := consume.TxSpec[struct{}, *sql.Tx]{Handle: func(context.Context, *sql.Tx, *consume.Message, struct{}) error { return nil }}
	opts := kafkaonce.Options{CommitEvery: 10 * time.Millisecond}
	m := l.join(spec, opts)
	m.wants("m-1 executed fenced=false", "m-2 executed fenced=false", "m-3 executed fenced=false")
	h.must(t, "UPDATE everonce_kafka_offsets SET next = 1, epoch = -1 WHERE topic = $1", l.topic.Name)
	l.send(0, "m-4")
	m.event(kafkaonce.Lost)
	if err := m.ended(); !errors.Is(err, kafkaonce.ErrFenced) {
		t.Errorf("Run ended with %v", err)
	}
	if next := l.next(0); next != 1 {
		t.Errorf("the table's offset is %d, want 1", next)
	}
	l.join(spec, opts).wants("m-2 replayed fenced=false", "m-3 replayed fenced=false", "m-4 executed fenced=false")
}

// The statements are PostgreSQL's and SQLite's. Offsets that are nil are refused too.
func TestKafkaOffsetsRefuse(t *testing.T) {
	t.Parallel()
	db, err := sql.Open("mysql", "u@tcp(127.0.0.1:1)/d")
	must(t, err)
	defer db.Close() //nolint:errcheck // nothing is in it
	store, err := mysqlstore.New(db, nil)
	must(t, err)
	receiver, err := everonce.NewTxReceiver(store, nil)
	must(t, err)
	if _, err := kafkaonce.NewOffsets(receiver); !errors.Is(err, everonce.ErrInvalidArgument) {
		t.Errorf("MySQL: %v", err)
	}
	var none *kafkaonce.Offsets[*sql.Tx]
	handler, err := consume.NewTx(receiver, consume.TxSpec[struct{}, *sql.Tx]{
		Consumer: "billing", Key: consume.ProducerID(), Offsets: none, Handle: func(context.Context, *sql.Tx, *consume.Message, struct{}) error { return nil },
	})
	must(t, err)
	if _, err := kafkaonce.Dial(t.Context(), "kafka://127.0.0.1:1", kafkaonce.Topic{Name: "orders"}, handler, nil); !errors.Is(err, everonce.ErrInvalidArgument) {
		t.Errorf("nil: %v", err)
	}
}

// A consumer gets an error if the row of its partition is removed.
func TestKafkaOffsetsRowIsRemoved(t *testing.T) {
	t.Parallel()
	h := onSQLite(t)
	l := newLog(t, h, 1)
	l.send(0, "m-1")
	m := l.join(consume.TxSpec[struct{}, *sql.Tx]{Handle: func(context.Context, *sql.Tx, *consume.Message, struct{}) error { return nil }},
		kafkaonce.Options{CommitEvery: 10 * time.Millisecond})
	m.wants("m-1 executed fenced=false")
	h.must(t, "DELETE FROM everonce_kafka_offsets")
	l.send(0, "m-2")
	m.event(kafkaonce.Lost)
	if err := m.ended(); !errors.Is(err, kafkaonce.ErrFenced) {
		t.Errorf("Run ended with %v", err)
	}
}
