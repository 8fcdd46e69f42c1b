package patterntest

import (
	"bytes"
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/oncetest"
	"github.com/everonce/everonce/session"
	"github.com/everonce/everonce/session/sqlsession"
)

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

func (c clients[Tx]) do(t testing.TB, command session.Command) session.Reply {
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

// A failed request leaves nothing, and its number unused; a committed one is replayed from the row, unchanged or as
// elided; a session that has ended is distinguished from one that never existed.
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

func TestSessionDuplicatesAtOnce(t *testing.T) {
	onAll(t, testSessionDuplicates[pgx.Tx], testSessionDuplicates[*sql.Tx])
}

// Two hosts get the same requests at the same time, and others of the same session: each takes effect once, and each
// copy is answered. Registrations at the same time keep within the quota, and copies of one begin one session.
func testSessionDuplicates[Tx any](t *testing.T, h *handle[Tx]) {
	config, patient := session.Config{PerPrincipal: 3, MaxSessions: 5}, &sqlsession.Options{Wait: time.Minute}
	hosts := []clients[Tx]{newSessions(t, h, config, patient), newSessions(t, h, config, patient)}
	var wg sync.WaitGroup
	at := func(host clients[Tx], c session.Command, check func(session.Reply)) {
		wg.Go(func() {
			a, err := host.Apply(t.Context(), &c, host.effect)
			if err != nil {
				t.Error(err)
			}
			check(a)
		})
	}
	var mu sync.Mutex
	began := map[session.Nonce]session.ID{}
	nonce, other := anyNonce(), anyNonce()
	for range 3 {
		for _, host := range hosts {
			for _, n := range []session.Nonce{nonce, other} {
				at(host, session.Command{Op: session.Register, Nonce: n, Principal: "alice"}, func(a session.Reply) {
					mu.Lock()
					defer mu.Unlock()
					if id, again := began[n]; a.Err != 0 || again && id != a.Session {
						t.Errorf("Register: %+v, and %d before", a, id)
					}
					began[n] = a.Session
				})
			}
		}
	}
	wg.Wait()
	for _, principal := range []string{"alice", "alice", "bob", "bob"} { // the last one finds the store full
		for _, host := range hosts {
			at(host, session.Command{Op: session.Register, Nonce: anyNonce(), Principal: principal}, func(session.Reply) {})
		}
		wg.Wait()
	}
	if n := h.number(t, "SELECT count(*) FROM everonce_session WHERE principal = 'alice'"); n != 3 {
		t.Errorf("%d sessions of a principal, want 3", n)
	}
	if n := h.number(t, "SELECT count(*) FROM everonce_session"); n != 5 {
		t.Errorf("%d sessions, want 5", n)
	}

	for number := range uint64(4) {
		c := requestOf(began[nonce], nonce, number+1, fmt.Sprint("request ", number))
		for range 3 {
			for _, host := range hosts {
				at(host, c, func(a session.Reply) {
					if a.Err != 0 || string(a.Result) != string(c.Payload) {
						t.Errorf("%s: %+v", c.Payload, a)
					}
				})
			}
		}
	}
	wg.Wait()
	for number := range 4 {
		if n := hosts[0].effects(t, fmt.Sprint("request ", number)); n != 1 {
			t.Errorf("request %d: %d effects", number, n)
		}
	}
}

func TestSessionInProgress(t *testing.T) {
	t.Parallel()
	t.Run("pgx", func(t *testing.T) { t.Parallel(); testSessionInProgress(t, onPgx(t)) })
	onMySQLs(t, testSessionInProgress[*sql.Tx])
}

// While a request is executed, its copy is refused at once, and a registration with its nonce too; a keep-alive does
// not wait, and says that it has renewed nothing; and the session is not purged, although its lease is over: the end of
// the request renews it.
func testSessionInProgress[Tx any](t *testing.T, h *handle[Tx]) {
	h, micros := h.byHand(t)
	s, nonce := newSessions(t, h, session.Config{MaxSessions: 1, Evict: true}, &sqlsession.Options{Wait: -1}), anyNonce()
	id := s.register(t, nonce)
	c := requestOf(id, nonce, 1, "slow")
	ctx := limited(t)
	_, err := s.Apply(ctx, &c, func(ctx context.Context, tx Tx, payload []byte) ([]byte, error) {
		outside := t.Context() // as another process would
		for what, other := range map[string]session.Command{
			"its copy": c, "the next one": requestOf(id, nonce, 2, "next"),
			"its end": {Op: session.End, Session: id, Nonce: nonce}, "its registration": {Op: session.Register, Nonce: nonce},
		} {
			if a, err := s.Apply(outside, &other, s.effect); err != nil || a.Err != session.ErrInProgress {
				t.Errorf("%s: %+v, %v", what, a, err)
			}
		}
		micros.Add(time.Hour.Microseconds())
		beats := []session.Beat{{Session: id, Nonce: nonce, Mark: 1}, {Session: id, Nonce: anyNonce()}, {Session: id + 1, Nonce: nonce}}
		a, err := s.Apply(outside, &session.Command{Op: session.KeepAlive, Beats: beats}, nil)
		if err != nil || !slices.Equal(a.Beats, []session.Refusal{session.ErrInProgress, session.ErrSessionExpired, session.ErrSessionUnknown}) {
			t.Errorf("keep-alive: %+v, %v", a, err)
		}
		if n, err := s.Purge(outside, 10); n != 0 || err != nil {
			t.Errorf("purged %d, %v", n, err)
		}
		if a, err := s.Apply(outside, &session.Command{Op: session.Register, Nonce: anyNonce()}, nil); err != nil || a.Err != session.ErrFull {
			t.Errorf("evicting: %+v, %v", a, err)
		}
		return s.effect(ctx, tx, payload)
	})
	must(t, err)
	if a := s.do(t, c); !a.Replayed || s.effects(t, "slow") != 1 {
		t.Errorf("afterwards: %+v, %d effects", a, s.effects(t, "slow"))
	}
}

func TestStrangersLockNoSession(t *testing.T) {
	t.Parallel()
	t.Run("pgx", func(t *testing.T) { t.Parallel(); testStrangers(t, onPgx(t)) })
	onMySQLs(t, testStrangers[*sql.Tx])
}

// A client that knows only the IDs of sessions, which are 1, 2, 3, cannot stop other clients from renewing them,
// whatever it sends.
func testStrangers[Tx any](t *testing.T, h *handle[Tx]) {
	healthy := newSessions(t, h, session.Config{}, &sqlsession.Options{Wait: -1})
	own, foreign := make([]session.Beat, 20), make([]session.Beat, 20)
	for i := range own {
		nonce := anyNonce()
		own[i] = session.Beat{Session: healthy.register(t, nonce), Nonce: nonce}
		foreign[i] = session.Beat{Session: own[i].Session, Nonce: anyNonce()}
	}
	looked := 0
	h = tampered(t, h, &tampering{around: func(_ context.Context, _ string, call func() error) error {
		err := call()
		looked++
		a, failed := healthy.Apply(t.Context(), &session.Command{Op: session.KeepAlive, Beats: own[:15]}, nil)
		if failed != nil || a.Beats != nil {
			t.Errorf("while a stranger looks: %+v, %v", a, failed)
		}
		return err
	}})
	stranger := newSessions(t, h, session.Config{}, &sqlsession.Options{Wait: -1, Batch: 16})
	looked = 0
	mixed := append([]session.Beat{own[17]}, foreign...) // as who has a session
	for _, c := range []session.Command{
		{Op: session.KeepAlive, Beats: mixed}, requestOf(1, anyNonce(), 1, ""), requestOf(1, own[17].Nonce, 1, ""), {Op: session.End, Session: 2, Nonce: anyNonce()},
	} {
		a, err := stranger.Apply(t.Context(), &c, stranger.effect)
		if err != nil || c.Op != session.KeepAlive && a.Err != session.ErrSessionUnknown {
			t.Errorf("%+v: %+v, %v", c, a, err)
		}
		for i, refusal := range a.Beats {
			if (refusal == session.ErrSessionUnknown) != (i > 0) {
				t.Errorf("beat %d: %v", i, refusal)
			}
		}
	}
	if looked < 5 {
		t.Errorf("%d looks: the test is blind", looked)
	}
}

func TestSessionCallerThatHasGone(t *testing.T) {
	onAll(t, testSessionCallerGone[pgx.Tx], testSessionCallerGone[*sql.Tx])
}

// A caller that gives up gets its own context's error, and not a failure of the store.
func testSessionCallerGone[Tx any](t *testing.T, h *handle[Tx]) {
	s, gone := newSessions(t, h, session.Config{}, nil), errors.New("gone")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(gone)
	for _, c := range []session.Command{
		{Op: session.Register, Nonce: anyNonce()}, requestOf(1, anyNonce(), 1, "x"), {Op: session.KeepAlive, Beats: []session.Beat{{Session: 1}}}, {Op: session.End, Session: 1},
	} {
		if _, err := s.Apply(ctx, &c, s.effect); !errors.Is(err, gone) || errors.Is(err, everonce.ErrStore) {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

func TestCrashPointsOfASession(t *testing.T) {
	onEachDatabase(t, testCrashPointsOfASession[pgx.Tx], testCrashPointsOfASession[*sql.Tx])
}

// Whatever call of a host fails, done or not, the commit's too: the client sends the same again until it is answered,
// and each request has had its effect once, and the session was begun once.
func testCrashPointsOfASession[Tx any](t *testing.T, h *handle[Tx]) {
	newSessions(t, h, session.Config{}, nil)
	everyPoint(t, func(c *crashPoint, name string) {
		faulty := h.on(t, &tamperedStore[Tx]{oncetest.FaultTxStore[Tx](h.store, c.plan), tampered(t, h, &tampering{around: c.around}).sqldb(t)})
		s, nonce := clients[Tx]{h: h}, anyNonce()
		var err error
		s.Store, err = sqlsession.New(faulty.receiver, session.Config{Lease: time.Minute}, nil)
		must(t, err)
		send := func(command session.Command) session.Reply {
			for range 20 {
				if a, err := s.Apply(t.Context(), &command, s.effect); err == nil {
					return a
				}
			}
			t.Fatalf("%s: no answer", name)
			return session.Reply{}
		}
		before := h.number(t, "SELECT count(*) FROM everonce_session")
		id := send(session.Command{Op: session.Register, Nonce: nonce}).Session
		for number := range uint64(3) {
			request := requestOf(id, nonce, number+1, fmt.Sprint(name, " ", number))
			request.Mark = number / 2
			if a := send(request); a.Err != 0 || string(a.Result) != string(request.Payload) {
				t.Errorf("%s: %+v", request.Payload, a)
			}
			if n := s.effects(t, string(request.Payload)); n != 1 {
				t.Errorf("%s: %d effects", request.Payload, n)
			}
		}
		if a := send(session.Command{Op: session.KeepAlive, Beats: []session.Beat{{Session: id, Nonce: nonce, Mark: 2}}}); a.Err != 0 || a.Beats != nil {
			t.Errorf("%s: keep-alive: %+v", name, a)
		}
		if n := h.number(t, "SELECT count(*) FROM everonce_session_answer WHERE session_id = $1", int64(id)); n != 1 {
			t.Errorf("%s: %d answers are kept, want 1", name, n)
		}
		if n := h.number(t, "SELECT count(*) FROM everonce_session") - before; n != 1 || h.number(t, "SELECT sessions FROM everonce_session_state") != before+1 {
			t.Errorf("%s: %d sessions were begun", name, n)
		}
		if a := send(session.Command{Op: session.End, Session: id, Nonce: nonce}); a.Err != 0 && a.Err != session.ErrSessionExpired { // a copy's
			t.Errorf("%s: end: %+v", name, a)
		}
		if h.number(t, "SELECT sessions FROM everonce_session_state") != before {
			t.Errorf("%s: the end is not counted", name)
		}
	})
}

func TestSessionsArePurgedInBatches(t *testing.T) {
	onEachDatabase(t, testSessionPurge[pgx.Tx], testSessionPurge[*sql.Tx])
}

// Ended sessions are removed with their results, as many as asked for, and live sessions are kept. A full store makes
// room on its own.
func testSessionPurge[Tx any](t *testing.T, h *handle[Tx]) {
	h, micros := h.byHand(t)
	s, nonce := newSessions(t, h, session.Config{MaxSessions: 260}, nil), anyNonce()
	h.inTx(t, func(ctx context.Context, tx Tx) error {
		for i := 1; i <= 260; i++ {
			last := micros.Load() - time.Minute.Microseconds() - int64(i)
			err := h.exec(ctx, tx, "INSERT INTO everonce_session (id, nonce, principal, ordered, epoch, mark, high, bytes, last, era) VALUES ($1, $2, '', 0, 0, 0, 0, 0, $3, $4)",
				int64(i), fmt.Sprint(i), last, last>>26)
			if err == nil && i%10 == 0 {
				err = h.exec(ctx, tx, "INSERT INTO everonce_session_answer (session_id, number, elided, fingerprint, size) VALUES ($1, 1, 0, $2, 0)", int64(i), []byte{})
			}
			if err != nil {
				return err
			}
		}
		return h.exec(ctx, tx, "UPDATE everonce_session_state SET last_id = 260, sessions = 260")
	})
	id := s.register(t, nonce)
	if id != 261 {
		t.Errorf("the next ID is %d", id)
	}
	if n := h.number(t, "SELECT sessions FROM everonce_session_state"); n != 161 {
		t.Errorf("%d sessions after the room of a batch was made, want 161", n)
	}
	for _, want := range []int{130, 30, 0} {
		if n, err := s.Purge(t.Context(), 130); n != want || err != nil {
			t.Errorf("purged %d, %v, want %d", n, err, want)
		}
	}
	if n, answers := h.number(t, "SELECT sessions FROM everonce_session_state"), h.number(t, "SELECT count(*) FROM everonce_session_answer"); n != 1 || answers != 0 {
		t.Errorf("%d sessions and %d answers are left", n, answers)
	}
	if a := s.do(t, requestOf(id, nonce, 1, "lives")); a.Err != 0 {
		t.Errorf("what lives: %+v", a)
	}
}

// A transaction that the server has rolled back, for a deadlock say, is over: an answer that is written nevertheless
// would commit alone, without its effect.
func TestTrapNoAnswerCommitsByItself(t *testing.T) {
	t.Parallel()
	onMySQLs(t, testTrapNoAnswerCommitsByItself)
}

func testTrapNoAnswerCommitsByItself(t *testing.T, h *handle[*sql.Tx]) {
	s, nonce := newSessions(t, h, session.Config{}, nil), anyNonce()
	id := s.register(t, nonce)
	c := requestOf(id, nonce, 1, "lost")
	a, err := s.Apply(t.Context(), &c, func(ctx context.Context, tx *sql.Tx, payload []byte) ([]byte, error) {
		_, err := s.effect(ctx, tx, payload)
		return payload, errors.Join(err, h.exec(ctx, tx, "ROLLBACK"))
	})
	if !errors.Is(err, everonce.ErrStore) || a.Result != nil || h.number(t, "SELECT count(*) FROM everonce_session_answer") != 0 {
		t.Errorf("%+v, %v, %d answers", a, err, h.number(t, "SELECT count(*) FROM everonce_session_answer"))
	}
}
