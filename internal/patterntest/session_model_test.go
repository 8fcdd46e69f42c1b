package patterntest

import (
	"bytes"
	"context"
	"database/sql"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/everonce/everonce/internal/sqldb"
	"github.com/everonce/everonce/session"
)

// handClock is a store's clock that a test sets, for what stands beside the store.
type handClock[Tx any] struct {
	sqldb.DB[Tx]
	micros *atomic.Int64
}

func (c handClock[Tx]) Dialect() *sqldb.Dialect {
	d := *c.DB.Dialect()
	d.Now, d.Clock = "", func() time.Time { return time.UnixMicro(c.micros.Load()) }
	return &d
}

// byHand returns the handle with such a clock.
func (h *handle[Tx]) byHand(t testing.TB) (*handle[Tx], *atomic.Int64) {
	t.Helper()
	micros := new(atomic.Int64)
	micros.Store(time.Now().UnixMicro())
	return h.on(t, &tamperedStore[Tx]{h.store, handClock[Tx]{h.sqldb(t), micros}}), micros
}

func TestSessionsAnswerAsTheMachine(t *testing.T) {
	onEachDatabase(t, testSessionModel[pgx.Tx], testSessionModel[*sql.Tx])
}

// The same random commands at the same times have the same answers from rows as from memory, and each request that is
// accepted first has one effect.
func testSessionModel[Tx any](t *testing.T, h *handle[Tx]) {
	h, micros := h.byHand(t)
	seeds, steps := 4, 150
	if !testing.Short() {
		seeds = 60
	}
	refusals := map[session.Refusal]int{}
	executed := 0
	newSessions(t, h, session.Config{}, nil)
	for seed := range uint64(seeds) {
		random := rand.New(rand.NewPCG(seed, 1))
		config := session.Config{
			Lease: 300 * time.Microsecond, Window: 2 + random.Uint64N(5), MaxResult: 10, MaxBytes: 20, MaxSessions: 2 + random.IntN(4), PerPrincipal: 2 + random.IntN(4), Evict: random.IntN(2) == 0,
		}
		for _, table := range []string{"session", "session_answer"} {
			h.must(t, "DELETE FROM everonce_"+table)
		}
		h.must(t, "UPDATE everonce_session_state SET last_id = 0, sessions = 0")
		s := newSessions(t, h, config, nil)
		m, err := session.New(config)
		must(t, err)
		live := map[byte]session.ID{} // by the last byte of the nonce
		for step := range steps {
			now := micros.Add(random.Int64N(24))
			c := randomCommand(random, live)
			if random.IntN(20) == 0 { // it changes no answer
				_, err := s.Purge(t.Context(), 1+random.IntN(3))
				must(t, err)
			}
			ran := 0
			want := m.Apply(now*1000, &c, func() []byte { ran++; return c.Payload })
			got, err := s.Apply(t.Context(), &c, func(context.Context, Tx, []byte) ([]byte, error) { ran--; return c.Payload, nil })
			must(t, err)
			if got.Err != want.Err || got.Replayed != want.Replayed || got.Elided != want.Elided || got.Session != want.Session || got.Epoch != want.Epoch || got.High != want.High ||
				got.Next != want.Next || !bytes.Equal(got.Result, want.Result) || !slices.Equal(got.Beats, want.Beats) || ran != 0 {
				t.Fatalf("seed %d, step %d: %+v of %+v, want %+v", seed, step, got, c, want)
			}
			switch {
			case c.Op == session.Register && want.Err == 0:
				live[c.Nonce[15]] = want.Session
			case want.Err == session.ErrSessionExpired:
				delete(live, c.Nonce[15])
			}
			refusals[want.Err]++
			if step%10 == 0 && h.number(t, "SELECT count(*) FROM everonce_session AS s WHERE bytes <> (SELECT coalesce(sum(size), 0) FROM everonce_session_answer AS a WHERE a.session_id = s.id)") != 0 {
				t.Fatalf("seed %d, step %d: bytes differ from the size of the results", seed, step)
			}
			if c.Op == session.Request && want.Err == 0 && !want.Replayed {
				executed++
			}
		}
		_, err = s.Purge(t.Context(), 1000)
		must(t, err)
		if n := h.number(t, "SELECT sessions FROM everonce_session_state"); n != h.number(t, "SELECT count(*) FROM everonce_session") {
			t.Errorf("%d sessions are counted", n)
		}
	}
	if len(refusals) < 11 || executed < 10*seeds {
		t.Errorf("answers %v, %d executions: it is blind", refusals, executed)
	}
}

// randomCommand makes a command of a small world, mostly for a session that lives.
func randomCommand(random *rand.Rand, live map[byte]session.ID) session.Command {
	below := func(n int) uint64 { return uint64(random.IntN(n)) }
	to := func() (session.ID, session.Nonce) {
		n := byte(below(6))
		if id, ok := live[n]; ok && below(10) > 0 {
			return id, session.Nonce{15: n}
		}
		return session.ID(below(9)), session.Nonce{15: n}
	}
	c := session.Command{
		Op: session.Request, Number: below(7), Principal: string('a' + rune(below(8)/7)),
		Payload: bytes.Repeat([]byte("x"), int(below(13))), Fingerprint: session.Fingerprint{byte(below(8) / 7)},
	}
	c.Session, c.Nonce = to()
	if below(20) == 0 {
		c.Epoch = below(3)
	}
	if below(2) == 0 {
		c.Mark = below(int(c.Number) + 1)
	}
	_, lives := live[c.Nonce[15]]
	switch kind := below(9); {
	case kind == 0, !lives && kind < 6:
		c.Op, c.Ordered = session.Register, c.Nonce[15]%3 == 0 != (below(20) == 0)
	case kind == 7:
		c.Op = session.KeepAlive
		for range below(5) {
			var b session.Beat
			b.Session, b.Nonce = to()
			if below(4) == 0 {
				b.Epoch, b.Mark = below(8)/7, below(14)
			}
			c.Beats = append(c.Beats, b)
		}
	case kind == 8 && below(5) == 0:
		c.Op, c.Epoch = session.End, 3
	}
	return c
}
