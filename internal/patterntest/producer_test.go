package patterntest

import (
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/oncetest"
	"github.com/everonce/everonce/session/producer"
	"github.com/everonce/everonce/session/producer/sqlproducer"
)

// streams is a log of streams with what tests do to it.
type streams[Tx any] struct {
	*sqlproducer.Store[Tx]
	h *handle[Tx]
}

// newStreams makes the log with the stream "orders".
func newStreams[Tx any](t testing.TB, h *handle[Tx], opts *sqlproducer.Options) streams[Tx] {
	t.Helper()
	s, err := sqlproducer.New(h.receiver, opts)
	must(t, err)
	must(t, s.Migrate(t.Context()))
	must(t, s.CreateStream(t.Context(), "orders"))
	return streams[Tx]{s, h}
}

func (s streams[Tx]) grant(t testing.TB, name string) producer.Grant {
	t.Helper()
	g, err := s.InitProducer(t.Context(), name)
	must(t, err)
	return g
}

// batchOf is a batch for "orders" whose records are texts.
func batchOf(g producer.Grant, first int32, records ...string) *sqlproducer.Batch {
	b := &sqlproducer.Batch{Stream: "orders", Producer: g.Producer, Epoch: g.Epoch, First: first}
	for _, r := range records {
		b.Records = append(b.Records, []byte(r))
	}
	return b
}

func (s streams[Tx]) send(t testing.TB, b *sqlproducer.Batch) producer.Decision {
	t.Helper()
	a, err := s.Append(t.Context(), b)
	must(t, err)
	return a
}

// wants sends a batch, and compares the answer.
func (s streams[Tx]) wants(t testing.TB, what string, b *sqlproducer.Batch, want producer.Decision) {
	t.Helper()
	if a := s.send(t, b); a != want {
		t.Errorf("%s: %+v, want %+v", what, a, want)
	}
}

// texts is the whole of a stream from a position on, and checks that it is dense.
func (s streams[Tx]) texts(t testing.TB, stream string, from int64) (all []string) {
	t.Helper()
	for {
		records, err := s.Read(t.Context(), stream, from, 100)
		must(t, err)
		if len(records) == 0 {
			return all
		}
		for _, r := range records {
			if r.Position != from {
				t.Fatalf("%s: position %d where %d is to be", stream, r.Position, from)
			}
			from++
			all = append(all, string(r.Value))
		}
	}
}

func (s streams[Tx]) has(t testing.TB, from int64, want ...string) {
	t.Helper()
	if got := s.texts(t, "orders", from); !slices.Equal(got, want) {
		t.Errorf("the stream has %q, want %q", got, want)
	}
}

func TestProducerBatchAndSequenceAreOneCommit(t *testing.T) {
	onAll(t, testProducerOneCommit[pgx.Tx], testProducerOneCommit[*sql.Tx])
}

// A batch is in the stream once, a copy is acknowledged at its position, and a refused batch leaves nothing; in a
// transaction of the caller all of it commits with that, or not at all.
func testProducerOneCommit[Tx any](t *testing.T, h *handle[Tx]) {
	s, ctx := newStreams(t, h, &sqlproducer.Options{Window: 2, MaxRecords: 3, MaxBytes: 10}), t.Context()
	must(t, s.Migrate(ctx))
	must(t, s.CreateStream(ctx, "orders")) // again: nothing changes
	g := s.grant(t, "billing")
	for range 2 {
		a := s.send(t, batchOf(g, 0, "a", ""))
		if a.Err != 0 || a.Position != 0 {
			t.Errorf("the first batch: %+v", a)
		}
	}
	s.wants(t, "a gap", batchOf(g, 3, "d"), producer.Decision{Err: producer.ErrOutOfOrder, Expected: 2})
	s.wants(t, "the next", batchOf(g, 2, "c"), producer.Decision{Position: 2})
	s.wants(t, "the same numbers for others", batchOf(g, 2, "C"), producer.Decision{Err: producer.ErrMismatch})
	other := batchOf(g, 0, "x")
	other.Stream = "others"
	s.wants(t, "an unknown stream", other, producer.Decision{Err: producer.ErrNoStream})
	other.Stream = strings.Repeat("x", 256)
	s.wants(t, "a stream that cannot be", other, producer.Decision{Err: producer.ErrNoStream})
	s.wants(t, "too many records", batchOf(g, 3, "1", "2", "3", "4"), producer.Decision{Err: producer.ErrTooLarge})
	s.wants(t, "too many bytes", batchOf(g, 3, "12345678901"), producer.Decision{Err: producer.ErrTooLarge})
	s.wants(t, "no records", batchOf(g, 3), producer.Decision{Err: producer.ErrInvalid})
	s.wants(t, "a negative number", batchOf(g, -1, "x"), producer.Decision{Err: producer.ErrInvalid})
	s.wants(t, "no producer", batchOf(producer.Grant{}, 0, "x"), producer.Decision{Err: producer.ErrInvalid})
	s.wants(t, "one to come", batchOf(producer.Grant{Producer: g.Producer + 1}, 0, "x"), producer.Decision{Err: producer.ErrUnknown})
	s.wants(t, "an epoch to come", batchOf(producer.Grant{Producer: g.Producer, Epoch: 1}, 0, "x"), producer.Decision{Err: producer.ErrUnknown})

	for _, commits := range []bool{false, true} {
		tx, commit, rollback, err := h.begin(ctx)
		must(t, err)
		a, err := s.AppendTx(ctx, tx, batchOf(g, 3, "d"))
		if err != nil || a != (producer.Decision{Position: 3}) {
			t.Errorf("AppendTx: %+v, %v", a, err)
		}
		if a, err := s.AppendTx(ctx, tx, batchOf(g, 3, "d")); err != nil || !a.Duplicate {
			t.Errorf("AppendTx again: %+v, %v", a, err)
		}
		if a, err := s.AppendTx(ctx, tx, batchOf(g, 5, "f")); !errors.Is(err, producer.ErrOutOfOrder) || a.Expected != 4 {
			t.Errorf("AppendTx with a gap: %+v, %v", a, err)
		}
		if a, err := s.AppendTx(ctx, tx, batchOf(g, 4)); !errors.Is(err, producer.ErrInvalid) || a.Err != producer.ErrInvalid {
			t.Errorf("AppendTx of nothing: %+v, %v", a, err)
		}
		if commits {
			must(t, commit())
		} else {
			must(t, rollback())
			s.has(t, 0, "a", "", "c")
		}
	}
	s.wants(t, "one below the window", batchOf(g, 0, "a", ""), producer.Decision{Err: producer.ErrTooOld})

	later := s.grant(t, "billing")
	if later.Producer != g.Producer || later.Epoch != g.Epoch+1 {
		t.Errorf("granted %+v after %+v", later, g)
	}
	s.wants(t, "the earlier run", batchOf(g, 4, "e"), producer.Decision{Err: producer.ErrFenced})
	s.wants(t, "the later run", batchOf(later, 0, "e"), producer.Decision{Position: 4})
	s.has(t, 0, "a", "", "c", "d", "e")
	s.has(t, 1, "", "c", "d", "e")
	records, err := s.Read(ctx, "orders", 1, 3)
	if err != nil || len(records) != 3 || records[0].Sequence != 1 || records[0].Producer != g.Producer || time.Since(records[2].At).Abs() > time.Hour {
		t.Errorf("%+v, %v", records, err)
	}
	if first, next, err := s.Bounds(ctx, "orders"); first != 0 || next != 5 || err != nil {
		t.Errorf("from %d to %d, %v", first, next, err)
	}
	if _, err := s.Read(ctx, "others", 0, 1); !errors.Is(err, producer.ErrNoStream) {
		t.Errorf("reading an unknown stream: %v", err)
	}
	if n := h.number(t, "SELECT count(*) FROM everonce_producer_window"); n != 1 {
		t.Errorf("%d rows of windows", n)
	}
}

func TestCrashPointsOfAProducer(t *testing.T) {
	onEachDatabase(t, testCrashPointsOfAProducer[pgx.Tx], testCrashPointsOfAProducer[*sql.Tx])
}

// Whatever call of a host fails, done or not, the commit's too: the producer sends the same again until it is answered,
// and each record is in the stream once, in its order; a grant that is asked for again fences what came before.
func testCrashPointsOfAProducer[Tx any](t *testing.T, h *handle[Tx]) {
	sound := newStreams(t, h, nil)
	everyPoint(t, func(c *crashPoint, name string) {
		faulty := h.on(t, &tamperedStore[Tx]{oncetest.FaultTxStore[Tx](h.store, c.plan), tampered(t, h, &tampering{around: c.around}).sqldb(t)})
		s := streams[Tx]{h: h}
		var err error
		s.Store, err = sqlproducer.New(faulty.receiver, nil)
		must(t, err)
		again := func(call func() error) {
			for range 20 {
				if err = call(); err == nil {
					return
				}
			}
			t.Fatalf("%s: no answer: %v", name, err)
		}
		_, before, err := sound.Bounds(t.Context(), "orders")
		must(t, err)
		var early, g producer.Grant
		grant := func(to *producer.Grant) {
			again(func() error { *to, err = s.InitProducer(t.Context(), name); return err })
		}
		send := func(b *sqlproducer.Batch) (a producer.Decision) {
			again(func() error { a, err = s.Append(t.Context(), b); return err })
			return a
		}
		grant(&early)
		if a := send(batchOf(early, 0, "early")); a.Err != 0 {
			t.Errorf("%s: early: %+v", name, a)
		}
		grant(&g)
		if g.Producer != early.Producer || g.Epoch <= early.Epoch {
			t.Errorf("%s: granted %+v after %+v", name, g, early)
		}
		if a := send(batchOf(early, 1, "fenced")); a.Err != producer.ErrFenced {
			t.Errorf("%s: an earlier run: %+v", name, a)
		}
		want := []string{"early"}
		for i := range int32(3) {
			texts := []string{fmt.Sprint(name, " ", i), fmt.Sprint(name, " ", i, " too")}
			want = append(want, texts...)
			if a := send(batchOf(g, 2*i, texts...)); a.Err != 0 || a.Position != before+1+2*int64(i) {
				t.Errorf("%s: %+v", texts, a)
			}
		}
		if got := sound.texts(t, "orders", before); !slices.Equal(got, want) {
			t.Errorf("%s: the stream has %q, want %q", name, got, want)
		}
	})
}

func TestProducersAtOnce(t *testing.T) {
	onAll(t, testProducersAtOnce[pgx.Tx], testProducersAtOnce[*sql.Tx])
}

// Two hosts get batches of several producers for two streams at the same time, each twice: positions are dense, and
// each producer's records are in the stream once and in order. Runs of one name at the same time get different epochs.
func testProducersAtOnce[Tx any](t *testing.T, h *handle[Tx]) {
	hosts := []streams[Tx]{newStreams(t, h, nil), newStreams(t, h, nil)}
	must(t, hosts[0].CreateStream(t.Context(), "others"))
	if err := auditProducers(t, hosts); err != nil {
		t.Error(err)
	}
	var wg sync.WaitGroup
	grants := make([]producer.Grant, 6)
	for i := range grants {
		wg.Go(func() {
			var err error
			if grants[i], err = hosts[i%2].InitProducer(t.Context(), "billing"); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	for i, g := range grants {
		if slices.Index(grants, g) != i || g.Producer != grants[0].Producer {
			t.Errorf("granted %+v", grants)
		}
	}
}

// auditProducers has producers send at the same time, and looks at what the streams have.
func auditProducers[Tx any](t *testing.T, hosts []streams[Tx]) error {
	t.Helper()
	const producers, batches = 4, 8
	names := []string{"orders", "others"}
	var wg sync.WaitGroup
	var mu sync.Mutex
	var found error
	report := func(format string, args ...any) {
		mu.Lock()
		defer mu.Unlock()
		found = errors.Join(found, fmt.Errorf(format, args...))
	}
	for p := range producers {
		g := hosts[0].grant(t, "")
		for n, stream := range names {
			wg.Go(func() {
				for i := range batches {
					b := batchOf(g, int32(2*i), fmt.Sprint(p, " ", 2*i), fmt.Sprint(p, " ", 2*i+1)) //nolint:gosec // few
					b.Stream = stream
					var copies sync.WaitGroup
					for _, host := range hosts {
						copies.Go(func() {
							if a, err := host.Append(t.Context(), b); err != nil || a.Err != 0 {
								report("producer %d, %d, batch %d: %+v, %w", p, n, i, a, err)
							}
						})
					}
					copies.Wait()
				}
			})
		}
	}
	wg.Wait()
	for _, stream := range names {
		next := map[string]int{}
		position := int64(0)
		for {
			records, err := hosts[0].Read(t.Context(), stream, position, 1000)
			if err != nil {
				return errors.Join(found, err)
			}
			if len(records) == 0 {
				break
			}
			for _, r := range records {
				who, number, _ := strings.Cut(string(r.Value), " ")
				if r.Position != position || fmt.Sprint(next[who]) != number {
					report("%s: position %d has %q, want position %d and number %d", stream, r.Position, r.Value, position, next[who])
				}
				position, next[who] = r.Position+1, next[who]+1
			}
		}
		if position != producers*batches*2 {
			report("%s has %d records", stream, position)
		}
	}
	return found
}

func second[T any](_ T, err error) error { return err }

// A transaction that the server has rolled back, for a deadlock say, is over: a batch that is appended nevertheless
// would commit alone.
func TestTrapNoBatchCommitsByItself(t *testing.T) {
	t.Parallel()
	onMySQLs(t, testTrapNoBatchCommitsByItself)
}

func testTrapNoBatchCommitsByItself(t *testing.T, h *handle[*sql.Tx]) {
	ctx := t.Context()
	s := newStreams(t, h, nil)
	g := s.grant(t, "")
	tx, _, rollback, err := h.begin(ctx)
	must(t, err)
	must(t, h.exec(ctx, tx, "ROLLBACK"))
	if a, err := s.AppendTx(ctx, tx, batchOf(g, 0, "lost")); !errors.Is(err, everonce.ErrStore) {
		t.Errorf("%+v, %v", a, err)
	}
	must(t, rollback())
	s.has(t, 0)
	s.wants(t, "again", batchOf(g, 0, "lost"), producer.Decision{})
}

func TestAnEarlierRunThatIsAppending(t *testing.T) {
	t.Parallel()
	t.Run("pgx", func(t *testing.T) { t.Parallel(); testEarlierRun(t, onPgx(t)) })
	onMySQLs(t, testEarlierRun[*sql.Tx])
}

// While a run has a transaction open, a grant to its name waits: what is granted sees all that came before, and nothing
// comes afterwards.
func testEarlierRun[Tx any](t *testing.T, h *handle[Tx]) {
	s, ctx := newStreams(t, h, nil), t.Context()
	for i, first := range []int32{0, 0, 1} { // in its first batch, and later; and each time of another run
		g := s.grant(t, "billing")
		if first > 0 {
			s.send(t, batchOf(g, 0, fmt.Sprint("before ", i)))
		}
		tx, commit, _, err := h.begin(ctx)
		must(t, err)
		a, err := s.AppendTx(ctx, tx, batchOf(g, first, fmt.Sprint("open ", i)))
		if err != nil || a.Err != 0 {
			t.Fatalf("%+v, %v", a, err)
		}
		granted := make(chan error, 1)
		var later producer.Grant
		go func() {
			var err error
			later, err = s.InitProducer(ctx, "billing")
			granted <- err
		}()
		select {
		case err := <-granted:
			t.Errorf("granted while a batch is being appended: %v", err)
		case <-time.After(200 * time.Millisecond): // no claim: a grant that comes later is seen by what follows
		}
		must(t, commit())
		must(t, heard(t, granted))
		s.wants(t, "the earlier run", batchOf(g, first+1, "late"), producer.Decision{Err: producer.ErrFenced})
		if later.Epoch != g.Epoch+1 {
			t.Errorf("granted %+v after %+v", later, g)
		}
	}
}

// With GrantedEpochs no sender fences a producer without a name by an epoch above its own.
func TestGrantedEpochs(t *testing.T) {
	t.Parallel()
	h := onSQLite(t)
	s := newStreams(t, h, &sqlproducer.Options{GrantedEpochs: true})
	g := s.grant(t, "")
	for first := range int32(2) { // also in its first batch
		raised := batchOf(producer.Grant{Producer: g.Producer, Epoch: producer.MaxEpoch}, 0, "another")
		s.wants(t, "an epoch that was not granted", raised, producer.Decision{Err: producer.ErrUnknown})
		s.wants(t, "the producer", batchOf(g, first, "own"), producer.Decision{Position: int64(first)})
	}
}

// A row that cannot be read is the store's failure, and never a producer that has sent nothing.
func TestTrapADamagedProducer(t *testing.T) {
	t.Parallel()
	h := onSQLite(t)
	s := newStreams(t, h, nil)
	g := s.grant(t, "")
	s.send(t, batchOf(g, 0, "a"))
	h.must(t, "UPDATE everonce_producer_window SET state = $1", []byte{})
	for first := range int32(2) {
		if a, err := s.Append(t.Context(), batchOf(g, first, "a")); !errors.Is(err, everonce.ErrStore) {
			t.Errorf("a state that is gone: %+v, %v", a, err)
		}
	}
	s.has(t, 0, "a")
	h.must(t, "DELETE FROM everonce_producer")
	h.must(t, "DELETE FROM everonce_producer_state")
	if g, err := s.InitProducer(t.Context(), ""); !errors.Is(err, everonce.ErrStore) {
		t.Errorf("granted %+v, %v, although the granted IDs are unknown", g, err)
	}
	if a, err := s.Append(t.Context(), batchOf(producer.Grant{Producer: 9}, 0, "a")); !errors.Is(err, everonce.ErrStore) {
		t.Errorf("an unknown producer: %+v, %v", a, err)
	}
	h.must(t, "UPDATE everonce_producer_log SET data = $1", []byte{7, 'a'})
	if r, err := s.Read(t.Context(), "orders", 0, 1); !errors.Is(err, everonce.ErrStore) {
		t.Errorf("a record that is cut short: %v, %v", r, err)
	}
}
