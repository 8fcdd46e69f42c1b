package sqlsession

import (
	"context"

	"github.com/everonce/everonce/internal/sqldb"
	"github.com/everonce/everonce/session"
)

// register begins a session, or finds the one that the same registration has begun. Registrations run one after the
// other: each locks the row of session_state until it commits, so that the count remains true.
func (s *Store[Tx]) register(ctx context.Context, conn sqldb.Conn, c *session.Command) (session.Reply, error) {
	call, nonce := s.dialect.Call, text(hashed(c.Nonce))
	var lastID, sessions, there, own int64
	var old row
	found := call(s.st.byNonce, nonce).ForEach(old.scan)
	calls := []*sqldb.Call{into(call(s.st.state), &lastID, &sessions), found, into(call(s.st.nonces, nonce), &there)}
	if s.config.PerPrincipal > 0 {
		calls = append(calls, into(call(s.st.held, c.Principal, s.lease), &own))
	}
	if err := conn.Send(ctx, calls...); err != nil {
		return session.Reply{}, err
	}
	switch live := found.Affected > 0 && old.now-old.last < s.lease; {
	case found.Affected == 0 && there > 0:
		return session.Reply{}, errBusy
	case live:
		return s.repeatRegistration(ctx, conn, c, &old)
	case found.Affected > 0:
		if err := s.remove(ctx, conn, old.id); err != nil {
			return session.Reply{}, err
		}
		sessions--
	}
	if s.config.PerPrincipal > 0 && own >= int64(s.config.PerPrincipal) {
		return refuse(session.ErrQuota)
	}
	if sessions >= int64(s.config.MaxSessions) {
		n, err := s.makeRoom(ctx, conn)
		if err != nil {
			return session.Reply{}, err
		}
		if n == 0 {
			return refuse(session.ErrFull)
		}
		sessions -= n
	}
	id := lastID + 1
	err := conn.Send(ctx,
		call(s.st.insert, id, nonce, c.Principal, flag(c.Ordered), signed(c.Epoch)),
		call(s.st.registered, id, sessions+1))
	return session.Reply{Session: session.ID(id), Epoch: c.Epoch}, err //nolint:gosec // not negative
}

// repeatRegistration answers a repeated registration.
func (s *Store[Tx]) repeatRegistration(ctx context.Context, conn sqldb.Conn, c *session.Command, r *row) (session.Reply, error) {
	refusal := s.admit(r, c.Nonce, c.Epoch)
	if refusal == 0 && (r.principal != c.Principal || r.Ordered != c.Ordered) {
		refusal = session.ErrMismatch
	}
	if refusal != 0 {
		return refuse(refusal)
	}
	r.Accept(c.Epoch, 0)
	err := conn.Send(ctx, s.dialect.Call(s.st.touch, r.id, signed(r.Epoch), signed(r.Mark), signed(r.High), r.bytes))
	return session.Reply{Session: session.ID(r.id), Epoch: r.Epoch, High: r.High}, err //nolint:gosec // not negative
}

// makeRoom removes sessions whose lease has ended, or else, with Evict, the one that was quiet for the longest time. It
// returns how many.
func (s *Store[Tx]) makeRoom(ctx context.Context, conn sqldb.Conn) (int64, error) {
	ids, err := s.choose(ctx, conn, s.dialect.Call(s.st.expired, s.lease, int64(purgeBatch)))
	if err == nil && len(ids) == 0 && s.config.Evict {
		ids, err = s.choose(ctx, conn, s.dialect.Call(s.st.quietest))
	}
	if err != nil || len(ids) == 0 {
		return 0, err
	}
	return int64(len(ids)), s.remove(ctx, conn, ids...)
}
