package patterntest

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/session"
	"github.com/everonce/everonce/session/sqlsession"
	"github.com/everonce/everonce/store/mysqlstore"
)

func TestSessionInProgress(t *testing.T) {
	t.Parallel()
	t.Run("pgx", func(t *testing.T) { t.Parallel(); testSessionInProgress(t, onPgx(t)) })
	t.Run("mariadb", func(t *testing.T) { t.Parallel(); testSessionInProgress(t, onMariaDB(t)) })
}

// While a request is executed, its copy is told so at once, and a registration with its nonce too; a keep-alive does not wait, and says
// that it has renewed nothing; and the session is not purged, although its lease is over: the end of the request renews it.
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
	t.Run("mariadb", func(t *testing.T) { t.Parallel(); testStrangers(t, onMariaDB(t)) })
}

// Who knows no more of sessions than their IDs, which are 1, 2, 3, keeps nobody from renewing them, whatever is sent.
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

// Who gives up is told that, and not that the store has failed.
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

func TestSessionsAtEachIsolation(t *testing.T) {
	t.Parallel()
	for _, level := range []sql.IsolationLevel{sql.LevelRepeatableRead, sql.LevelSerializable} {
		t.Run(level.String(), func(t *testing.T) { t.Parallel(); testSessionsAt(t, level) })
	}
}

// Where reads lock, or gaps between rows, works hold up nobody either, alone or in a batch: no other command of their session, and no
// registration.
func testSessionsAt(t *testing.T, level sql.IsolationLevel) {
	address, name := mariaDB(t)
	h := mariaDBHandle(t, address, name)
	h.ready(t)
	store, err := mysqlstore.New(h.db, &mysqlstore.Options{Database: name, Isolation: level})
	must(t, err)
	h = h.on(t, store)
	config := session.Config{PerPrincipal: 100}
	s, other := newSessions(t, h, config, oneByOne), newSessions(t, h, config, &sqlsession.Options{Wait: -1})
	gate := s.gate(t)
	var nonces [3]session.Nonce
	var ids [3]session.ID
	for i := range nonces {
		nonces[i] = anyNonce()
		ids[i] = s.register(t, nonces[i])
	}
	slow := requestOf(ids[2], nonces[2], 1, "slow")
	work := func(ctx context.Context, tx *sql.Tx, payload []byte) ([]byte, error) {
		ended := anyNonce()
		for _, c := range []session.Command{
			{Op: session.Register, Nonce: ended},
			{Op: session.Register, Nonce: anyNonce(), Principal: "bob"},
			{Op: session.Register, Nonce: nonces[2]},
			slow,
			{Op: session.KeepAlive, Beats: []session.Beat{{Session: ids[2], Nonce: nonces[2]}, {Session: gate.Session, Nonce: gate.Nonce}}},
			{Op: session.End, Nonce: ended},
		} {
			outside, cancel := context.WithTimeout(t.Context(), patience) // as another process would
			if c.Op == session.End {
				a, err := other.Apply(outside, &session.Command{Op: session.Register, Nonce: ended}, nil)
				must(t, err)
				c.Session = a.Session
			}
			if _, err := other.Apply(outside, &c, s.effect); err != nil {
				t.Errorf("beside a work, %+v: %v", c, err)
			}
			cancel()
		}
		return s.effect(ctx, tx, payload)
	}
	_, err = s.Apply(t.Context(), &slow, work)
	must(t, err)
	slow.Number++
	turns := []*turn[*sql.Tx]{{command: slow, work: work}, {command: requestOf(ids[0], nonces[0], 1, "beside")}}
	s.batch(t, gate, turns...)
	for _, turn := range turns {
		if turn.err != nil || turn.answer.Err != 0 {
			t.Errorf("%+v, %v", turn.answer, turn.err)
		}
	}
}
