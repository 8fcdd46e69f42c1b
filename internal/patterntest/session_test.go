package patterntest

import (
	"bytes"
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/internal/sqldb"
	"github.com/everonce/everonce/session"
	"github.com/everonce/everonce/session/sqlsession"
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

// clients is a store of sessions with what tests do to it.
type clients[Tx any] struct {
	*sqlsession.Store[Tx]
	h *handle[Tx]
}

func newSessions[Tx any](t testing.TB, h *handle[Tx], config session.Config, opts *sqlsession.Options) clients[Tx] {
	t.Helper()
	if config.Lease == 0 {
		config.Lease = time.Minute
	}
	s, err := sqlsession.New(h.receiver, config, opts)
	must(t, err)
	must(t, s.Migrate(t.Context()))
	return clients[Tx]{s, h}
}

// effect writes the payload, which is also the result.
func (c clients[Tx]) effect(ctx context.Context, tx Tx, payload []byte) ([]byte, error) {
	return payload, c.h.exec(ctx, tx, "INSERT INTO effects (name) VALUES ($1)", string(payload))
}

func (c clients[Tx]) do(t testing.TB, command session.Command) session.Answer {
	t.Helper()
	a, err := c.Apply(t.Context(), &command, c.effect)
	must(t, err)
	return a
}

func (c clients[Tx]) register(t testing.TB, nonce session.Nonce) session.ID {
	t.Helper()
	a := c.do(t, session.Command{Op: session.Register, Nonce: nonce})
	if a.Err != 0 || a.Session == 0 {
		t.Fatalf("Register: %+v", a)
	}
	return a.Session
}

func (c clients[Tx]) effects(t testing.TB, name string) int {
	t.Helper()
	return c.h.number(t, "SELECT count(*) FROM effects WHERE name = $1", name)
}

func anyNonce() (n session.Nonce) {
	_, _ = rand.Read(n[:])
	return n
}

func requestOf(id session.ID, nonce session.Nonce, number uint64, text string) session.Command {
	c := session.Command{Op: session.Request, Session: id, Nonce: nonce, Number: number, Payload: []byte(text)}
	copy(c.Fingerprint[:], text)
	return c
}

func TestSessionEffectAndAnswerAreOneCommit(t *testing.T) {
	onAll(t, testSessionOneCommit[pgx.Tx], testSessionOneCommit[*sql.Tx])
}

// What fails leaves nothing, and its number as it was; what commits is replayed from the row, as it was or as elided; what has
// ended is told from what never was.
func testSessionOneCommit[Tx any](t *testing.T, h *handle[Tx]) {
	s, nonce := newSessions(t, h, session.Config{MaxResult: 100}, nil), anyNonce()
	id := s.register(t, nonce)
	first := requestOf(id, nonce, 1, "first")
	broken := errors.New("broken")
	a, err := s.Apply(t.Context(), &first, func(ctx context.Context, tx Tx, payload []byte) ([]byte, error) {
		if _, err := s.effect(ctx, tx, payload); err != nil {
			return nil, err
		}
		return nil, broken
	})
	if !errors.Is(err, broken) || errors.Is(err, everonce.ErrStore) || a.Result != nil || s.effects(t, "first") != 0 {
		t.Errorf("work that failed: %+v, %v, %d effects", a, err, s.effects(t, "first"))
	}
	other := requestOf(id, nonce, 1, "other")
	if a := s.do(t, other); a.Err != 0 || a.Replayed {
		t.Errorf("the number, for another request: %+v", a)
	}
	for range 2 {
		if a := s.do(t, other); !a.Replayed || string(a.Result) != "other" {
			t.Errorf("again: %+v", a)
		}
	}
	if a := s.do(t, first); a.Err != session.ErrMismatch {
		t.Errorf("the first one's late copy: %+v", a)
	}
	large := requestOf(id, nonce, 2, string(bytes.Repeat([]byte("x"), 101)))
	if a := s.do(t, large); a.Err != 0 || len(a.Result) != 101 {
		t.Errorf("a large result: %+v", a)
	}
	if a := s.do(t, large); !a.Replayed || !a.Elided || a.Result != nil {
		t.Errorf("a large result again: %+v", a)
	}
	for _, name := range []string{"other", string(large.Payload)} {
		if n := s.effects(t, name); n != 1 {
			t.Errorf("%d effects", n)
		}
	}
	last := requestOf(id, nonce, 1<<63-1, "last")
	last.Mark = 1<<63 - 2
	if a := s.do(t, last); a.Err != 0 {
		t.Errorf("the highest number: %+v", a)
	}
	if n := h.number(t, "SELECT count(*) FROM everonce_session_answer"); n != 1 {
		t.Errorf("%d answers are kept, want the one above the mark", n)
	}
	if a := s.do(t, requestOf(id, nonce, 1<<63, "")); a.Err != session.ErrInvalid {
		t.Errorf("one more: %+v", a)
	}
	if n := h.number(t, "SELECT count(*) FROM everonce_session WHERE nonce = $1", fmt.Sprintf("%x", nonce)); n != 0 {
		t.Error("the secret is in the table")
	}

	if a := s.do(t, session.Command{Op: session.End, Session: id, Nonce: nonce}); a.Err != 0 {
		t.Errorf("End: %+v", a)
	}
	if n := h.number(t, "SELECT count(*) FROM everonce_session") + h.number(t, "SELECT count(*) FROM everonce_session_answer"); n != 0 {
		t.Errorf("%d rows are left", n)
	}
	if a := s.do(t, last); a.Err != session.ErrSessionExpired {
		t.Errorf("of a session that was ended: %+v", a)
	}
	if a := s.do(t, requestOf(id+1, nonce, 1, "")); a.Err != session.ErrSessionUnknown {
		t.Errorf("of one to come: %+v", a)
	}
	if next := s.register(t, nonce); next != id+1 {
		t.Errorf("the next session is %d after %d", next, id)
	}
}

func TestSessionsAnswerAsTheMachine(t *testing.T) {
	onEachDatabase(t, testSessionModel[pgx.Tx], testSessionModel[*sql.Tx])
}

// The same random commands at the same times have the same answers from rows as from memory, and each request that is accepted
// first has one effect.
func testSessionModel[Tx any](t *testing.T, h *handle[Tx]) {
	h, micros := h.byHand(t)
	seeds, steps := 4, 150
	if !testing.Short() {
		seeds = 60
	}
	refusals := map[session.Refusal]int{}
	executed := 0
	s := newSessions(t, h, session.Config{}, nil)
	for range seeds {
		seed := mathrand.Uint64()
		random := mathrand.New(mathrand.NewPCG(seed, 1))
		config := session.Config{
			Lease: 300 * time.Microsecond, Window: 1 + random.Uint64N(6), MaxResult: 10, MaxBytes: 20, MaxSessions: 2 + random.IntN(4), PerPrincipal: 1 + random.IntN(5), Evict: random.IntN(2) == 0,
		}
		for _, table := range []string{"session", "session_answer"} {
			h.must(t, "DELETE FROM everonce_"+table)
		}
		h.must(t, "UPDATE everonce_session_state SET last_id = 0, sessions = 0")
		s = newSessions(t, h, config, nil)
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
			if got.Err != want.Err || got.Replayed != want.Replayed || got.Elided != want.Elided || got.Session != want.Session || got.Epoch != want.Epoch ||
				got.Next != want.Next || !bytes.Equal(got.Result, want.Result) || !slices.Equal(got.Beats, want.Beats) || ran != 0 {
				t.Fatalf("seed %d, step %d: %+v of %+v, want %+v", seed, step, got, c, want)
			}
			if c.Op == session.Register && want.Err == 0 {
				live[c.Nonce[15]] = want.Session
			}
			refusals[want.Err]++
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
	if len(refusals) < 9 || executed < 10*seeds {
		t.Errorf("%v, %d executions: it is blind", refusals, executed)
	}
}

// randomCommand makes a command of a small world, mostly for a session that lives.
func randomCommand(random *mathrand.Rand, live map[byte]session.ID) session.Command {
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
	if below(4) == 0 {
		c.Mark = below(int(c.Number) + 1)
	}
	switch below(9) {
	case 0, 1:
		c.Op, c.Ordered = session.Register, c.Nonce[15]%3 == 0 != (below(20) == 0)
	case 3:
		c.Op = session.KeepAlive
		for range below(5) {
			var b session.Beat
			b.Session, b.Nonce = to()
			if below(4) == 0 {
				b.Epoch, b.Mark = below(8)/7, below(14)
			}
			c.Beats = append(c.Beats, b)
		}
	case 4:
		if below(5) == 0 {
			c.Op, c.Epoch = session.End, 3
		}
	}
	return c
}
