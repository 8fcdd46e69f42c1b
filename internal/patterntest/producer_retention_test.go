package patterntest

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/session/producer"
	"github.com/everonce/everonce/session/producer/sqlproducer"
)

func TestProducerRetention(t *testing.T) {
	onEachDatabase(t, testProducerRetention[pgx.Tx], testProducerRetention[*sql.Tx])
}

// A truncated batch is gone, and its copy is still a duplicate. A producer that is idle is forgotten, with its name,
// and refused from then on; an active one is kept.
func testProducerRetention[Tx any](t *testing.T, h *handle[Tx]) {
	h, micros := h.byHand(t)
	s, ctx := newStreams(t, h, nil), t.Context()
	g := s.grant(t, "billing")
	for i := range int32(4) {
		s.send(t, batchOf(g, 2*i, fmt.Sprint(2*i), fmt.Sprint(2*i+1)))
		micros.Add(time.Hour.Microseconds())
	}
	for _, step := range []struct {
		before int64
		limit  int
		want   int
	}{{6, 1, 1}, {0, 9, 0}, {5, 9, 1}} {
		if n, err := s.Truncate(ctx, "orders", step.before, step.limit); n != step.want || err != nil {
			t.Errorf("truncated %d batches below %d, %v", n, step.before, err)
		}
	}
	s.has(t, 4, "4", "5", "6", "7")
	if _, err := s.Read(ctx, "orders", 3, 1); !errors.Is(err, sqlproducer.ErrTruncated) {
		t.Errorf("what was truncated away: %v", err)
	}
	s.wants(t, "a copy of it", batchOf(g, 0, "0", "1"), producer.Decision{Duplicate: true})
	if n, err := s.Expire(ctx, "orders", 90*time.Minute, 9); n != 1 || err != nil {
		t.Errorf("expired %d batches, %v", n, err)
	}
	if n, err := s.Truncate(ctx, "orders", 100, 9); n != 1 || err != nil {
		t.Errorf("truncated %d, %v", n, err)
	}
	if first, next, err := s.Bounds(ctx, "orders"); first != 8 || next != 8 || err != nil {
		t.Errorf("from %d to %d, %v", first, next, err)
	}
	s.wants(t, "a copy, of an empty stream", batchOf(g, 6, "6", "7"), producer.Decision{Duplicate: true, Position: 6})
	s.wants(t, "the next, in an empty stream", batchOf(g, 8, "8"), producer.Decision{Position: 8})
	for _, err := range []error{
		second(s.Truncate(ctx, "others", 1, 1)), second(s.Expire(ctx, "others", time.Hour, 1)),
	} {
		if !errors.Is(err, producer.ErrNoStream) {
			t.Errorf("an unknown stream: %v", err)
		}
	}
	for _, err := range []error{
		second(s.Truncate(ctx, "orders", -1, 1)), second(s.Expire(ctx, "orders", -1, 1)), second(s.Truncate(ctx, "orders", 1, -1)), second(s.Purge(ctx, 0, 1)),
		second(s.Purge(ctx, time.Hour, -1)), second(s.Read(ctx, "orders", -1, 1)), second(s.Read(ctx, "orders", 0, 0)), s.CreateStream(ctx, ""),
		second(s.InitProducer(ctx, strings.Repeat("x", 256))), second(s.InitProducer(ctx, "\x00")),
	} {
		if !errors.Is(err, everonce.ErrInvalidArgument) {
			t.Errorf("an argument that cannot be: %v", err)
		}
	}

	var quiet []producer.Grant
	for range 3 {
		quiet = append(quiet, s.grant(t, ""))
	}
	s.send(t, batchOf(quiet[0], 0, "quiet"))
	micros.Add(3 * time.Hour.Microseconds())
	s.wants(t, "one that goes on", batchOf(g, 9, "9"), producer.Decision{Position: 10})
	for _, want := range []int{2, 1, 0} {
		if n, err := s.Purge(ctx, 2*time.Hour, 2); n != want || err != nil {
			t.Errorf("purged %d, %v, want %d", n, err, want)
		}
	}
	s.wants(t, "one that was forgotten", batchOf(quiet[0], 1, "late"), producer.Decision{Err: producer.ErrForgotten})
	s.wants(t, "its first batch", batchOf(quiet[0], 0, "quiet"), producer.Decision{Err: producer.ErrForgotten})
	s.wants(t, "one that has sent nothing", batchOf(quiet[1], 0, "late"), producer.Decision{Err: producer.ErrForgotten})
	s.wants(t, "one that lives", batchOf(g, 10, "10"), producer.Decision{Position: 11})
	if next := s.grant(t, ""); next.Producer != quiet[2].Producer+1 {
		t.Errorf("granted %+v after %+v", next, quiet[2])
	}
	if n := h.number(t, "SELECT count(*) FROM everonce_producer_window"); n != 1 {
		t.Errorf("%d rows of windows are left, want 1", n)
	}

	h.must(t, "UPDATE everonce_producer SET epoch = 32767 WHERE id = $1", int64(g.Producer))
	if last := s.grant(t, "billing"); last.Producer <= quiet[2].Producer || last.Epoch != 0 {
		t.Errorf("granted %+v when the epochs were used up", last)
	}
	s.wants(t, "the ID whose epochs are used up", batchOf(g, 11, "11"), producer.Decision{Err: producer.ErrForgotten})
}

func TestExpireEndsAtAYoungBatch(t *testing.T) {
	onEachDatabase(t, testExpireEnds[pgx.Tx], testExpireEnds[*sql.Tx])
}

// A clock was set back for one batch: no batch before it is removed with it, and none beyond the limit.
func testExpireEnds[Tx any](t *testing.T, h *handle[Tx]) {
	h, micros := h.byHand(t)
	s := newStreams(t, h, nil)
	g := s.grant(t, "")
	for i, hours := range []int64{9, 9, 0, 9, 0} {
		back := hours * time.Hour.Microseconds()
		micros.Add(-back)
		s.send(t, batchOf(g, int32(i), fmt.Sprint(i))) //nolint:gosec // few
		micros.Add(back)
	}
	for _, want := range []int{1, 1, 0} {
		if n, err := s.Expire(t.Context(), "orders", time.Hour, 1); n != want || err != nil {
			t.Errorf("expired %d, %v, want %d", n, err, want)
		}
	}
	s.has(t, 2, "2", "3", "4")
}

func TestPurgeOfProducersWaitsForNobody(t *testing.T) {
	t.Parallel()
	t.Run("pgx", func(t *testing.T) { t.Parallel(); testProducerPurge(t, onPgx(t)) })
	onMySQLs(t, testProducerPurge[*sql.Tx])
}

// More than a batch of producers is idle, and two of them have a transaction open: in a first batch, and in a later
// one. All others are removed.
func testProducerPurge[Tx any](t *testing.T, h *handle[Tx]) {
	h, micros := h.byHand(t)
	s := newStreams(t, h, nil)
	must(t, s.CreateStream(t.Context(), "others"))
	h.inTx(t, func(ctx context.Context, tx Tx) error {
		for id := range int64(250) {
			if err := h.exec(ctx, tx, "INSERT INTO everonce_producer (id, name, epoch, last) VALUES ($1, NULL, 0, $2)", id+1, micros.Load()); err != nil {
				return err
			}
		}
		return h.exec(ctx, tx, "UPDATE everonce_producer_state SET last_id = 250")
	})
	first, later := producer.Grant{Producer: 7}, producer.Grant{Producer: 120}
	s.send(t, batchOf(later, 0, "a"))
	micros.Add(3 * time.Hour.Microseconds())
	open := []*sqlproducer.Batch{batchOf(later, 1, "b"), batchOf(first, 0, "a")}
	open[1].Stream = "others"
	for _, b := range open {
		tx, commit, _, err := h.begin(t.Context())
		must(t, err)
		defer func() {
			must(t, commit())
			s.wants(t, "one that was appending", b, producer.Decision{Duplicate: true, Position: int64(b.First)})
		}()
		if a, err := s.AppendTx(t.Context(), tx, b); err != nil || a.Err != 0 {
			t.Errorf("%+v, %v", a, err)
		}
	}
	if n, err := s.Purge(limited(t), time.Hour, 1000); n != 248 || err != nil {
		t.Errorf("purged %d, %v", n, err)
	}
}

func TestPurgeOfProducersOfManyStreams(t *testing.T) {
	t.Parallel()
	t.Run("pgx", func(t *testing.T) { t.Parallel(); testPurgeOfManyStreams(t, onPgx(t)) })
	onMySQLs(t, testPurgeOfManyStreams[*sql.Tx])
}

// A transaction forgets few producers that have many streams, in few statements, and goes past one that is appending.
func testPurgeOfManyStreams[Tx any](t *testing.T, h *handle[Tx]) {
	s := newStreams(t, h, nil)
	for range 4 {
		g := s.grant(t, "")
		s.send(t, batchOf(g, 0, "a"))
		h.must(t, "INSERT INTO everonce_producer_window (stream, producer_id, granted, named, last, state) WITH RECURSIVE n AS (SELECT 0 AS i UNION ALL SELECT i + 1 FROM n WHERE i < 99)"+
			" SELECT concat('s', 100 * a.i + b.i), $1, 0, 0, 0, 'x' FROM n AS a, n AS b WHERE a.i < 60", int64(g.Producer))
	}
	h.must(t, "UPDATE everonce_producer SET last = id")
	drops := 0
	counted := newStreams(t, tampered(t, h, &tampering{around: func(_ context.Context, what string, call func() error) error {
		if n := strings.Count(what, "producer_drop"); n > 0 {
			if drops++; n > 2 {
				t.Errorf("statements that are sent at once: %s", what)
			}
		}
		return call()
	}}), nil)
	tx, commit, _, err := h.begin(t.Context())
	must(t, err)
	defer func() { must(t, commit()) }()
	must(t, second(s.AppendTx(t.Context(), tx, batchOf(producer.Grant{Producer: 1}, 1, "b"))))
	if n, err := counted.Purge(limited(t), time.Hour, 1000); n != 3 || drops != 3 || err != nil {
		t.Errorf("purged %d in %d transactions, %v", n, drops, err)
	}
}

func TestProducersThatWakeUp(t *testing.T) {
	onEachDatabase(t, testProducersThatWakeUp[pgx.Tx], testProducersThatWakeUp[*sql.Tx])
}

// Idle producers send while they are purged, their last batch again and a new one: each is either known, and goes on,
// or forgotten for good. None gets an error.
func testProducersThatWakeUp[Tx any](t *testing.T, h *handle[Tx]) {
	h, micros := h.byHand(t)
	s := newStreams(t, h, nil)
	for round := range 5 {
		var wg sync.WaitGroup
		var grants []producer.Grant
		for range 12 {
			g := s.grant(t, "")
			s.wants(t, "the first", batchOf(g, 0, "first"), producer.Decision{Position: s.end(t)})
			grants = append(grants, g)
		}
		micros.Add(3 * time.Hour.Microseconds())
		var removed int
		wg.Go(func() {
			var err error
			if removed, err = s.Purge(t.Context(), time.Hour, 100); err != nil {
				t.Errorf("purge: %v", err)
			}
		})
		answers := make([]producer.Decision, len(grants))
		for i, g := range grants {
			wg.Go(func() {
				for _, b := range []*sqlproducer.Batch{batchOf(g, 0, "first"), batchOf(g, 1, "second")} {
					a, err := s.Append(t.Context(), b)
					if err != nil || a.Err != 0 && a.Err != producer.ErrForgotten {
						t.Errorf("%+v, %v", a, err)
					}
					answers[i] = a
				}
			})
		}
		wg.Wait()
		lives := 0
		for i, g := range grants {
			a := s.send(t, batchOf(g, 1, "second"))
			if answers[i].Err != 0 && a.Err != producer.ErrForgotten || answers[i].Err == 0 && (!a.Duplicate || a.Position != answers[i].Position) {
				t.Errorf("%+v, and then %+v", answers[i], a)
			}
			if a.Err == 0 {
				lives++
			}
		}
		if n := h.number(t, "SELECT count(*) FROM everonce_producer"); n != lives || removed < len(grants)-lives {
			t.Errorf("round %d: %d producers and %d that live; %d were removed", round, n, lives, removed)
		}
		micros.Add(3 * time.Hour.Microseconds())
		if _, err := s.Purge(t.Context(), time.Hour, 100); err != nil {
			t.Fatal(err)
		}
	}
}

func (s streams[Tx]) end(t testing.TB) int64 {
	t.Helper()
	_, next, err := s.Bounds(t.Context(), "orders")
	must(t, err)
	return next
}
