package patterntest

import (
	"context"
	"database/sql"
	"testing"

	"github.com/everonce/everonce/session"
	"github.com/everonce/everonce/session/sqlsession"
	"github.com/everonce/everonce/store/mysqlstore"
)

func TestSessionsAtEachIsolation(t *testing.T) {
	t.Parallel()
	onMySQLServers(t, func(t *testing.T, server string) {
		for _, level := range []sql.IsolationLevel{sql.LevelRepeatableRead, sql.LevelSerializable} {
			t.Run(level.String(), func(t *testing.T) { t.Parallel(); testSessionsAt(t, server, level) })
		}
	})
}

// Even if reads lock, or gaps between rows are locked, works delay no other call, alone or in a batch: no other command
// of their session, and no registration.
func testSessionsAt(t *testing.T, server string, level sql.IsolationLevel) {
	_, name, h := onDatabase(t, server)
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
			outside, cancel := context.WithTimeout(t.Context(), hung) // as another process would
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
