package sqlsession

import (
	"context"

	"github.com/everonce/everonce/internal/sqldb"
	"github.com/everonce/everonce/session"
)

// purgeBatch is how many sessions one transaction removes, each with at most Config.Window results.
const purgeBatch = 100

// end ends a session.
func (s *Store[Tx]) end(ctx context.Context, conn sqldb.Conn, c *session.Command) (session.Reply, error) {
	r, refusal, err := s.lock(ctx, conn, c)
	switch {
	case err != nil:
		return session.Reply{}, err
	case refusal != 0:
		return refuse(refusal)
	}
	return session.Reply{}, s.removeCounted(ctx, conn, r.id)
}

// Purge removes sessions whose lease has ended by the store's clock, with their results, at most limit of them, in
// transactions of 100. It returns how many. It only frees space: a session has ended when its lease is over, and a
// registration removes such sessions itself. Several processes may call it at once.
func (s *Store[Tx]) Purge(ctx context.Context, limit int) (removed int, err error) {
	for removed < limit {
		var ids []int64
		batch := min(purgeBatch, limit-removed)
		err := s.withoutWork(ctx, "purge", func(ctx context.Context, conn sqldb.Conn) (err error) {
			if ids, err = s.choose(ctx, conn, s.dialect.Call(s.st.expired, s.lease, int64(batch))); err != nil || len(ids) == 0 {
				return err
			}
			return s.removeCounted(ctx, conn, ids...)
		})
		if err != nil {
			return removed, err
		}
		if removed += len(ids); len(ids) < batch {
			break
		}
	}
	return removed, nil
}

// choose returns the IDs of the sessions that a call locks.
func (s *Store[Tx]) choose(ctx context.Context, conn sqldb.Conn, call *sqldb.Call) (ids []int64, err error) {
	err = conn.Send(ctx, call.ForEach(func(r sqldb.Row) error {
		var id int64
		err := r.Scan(&id)
		ids = append(ids, id)
		return err
	}))
	return ids, err
}

// removeCounted removes sessions, and updates the number of sessions.
func (s *Store[Tx]) removeCounted(ctx context.Context, conn sqldb.Conn, ids ...int64) error {
	if err := s.remove(ctx, conn, ids...); err != nil {
		return err
	}
	return conn.Send(ctx, s.dialect.Call(s.st.fewer, int64(len(ids))))
}

// remove removes locked sessions.
func (s *Store[Tx]) remove(ctx context.Context, conn sqldb.Conn, ids ...int64) error {
	list := s.list(ids)
	return conn.Send(ctx, s.dialect.Call(s.st.dropAnswers, list), s.dialect.Call(s.st.drop, list))
}
