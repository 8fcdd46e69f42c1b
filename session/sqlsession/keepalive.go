package sqlsession

import (
	"context"

	"github.com/everonce/everonce/internal/sqldb"
	"github.com/everonce/everonce/session"
)

// keepAlive renews sessions: one statement locks all, and another renews all; only a new mark or epoch costs one more.
// A session that could not be locked is in progress, or does not exist: unlockedAll decides which. It was not renewed:
// the request in progress renews it only if it succeeds.
func (s *Store[Tx]) keepAlive(ctx context.Context, conn sqldb.Conn, c *session.Command) (session.Reply, error) {
	if len(c.Beats) == 0 {
		return session.Reply{}, nil
	}
	call := s.dialect.Call
	var ids []int64
	for i := range c.Beats {
		if s.owners.has(&c.Beats[i]) {
			ids = append(ids, int64(c.Beats[i].Session)) //nolint:gosec // see valid
		}
	}
	rows := make(map[session.ID]*row, len(ids))
	lock := call(s.st.lockAll, s.list(ids)).ForEach(intoRows(rows))
	if len(ids) > 0 {
		if err := conn.Send(ctx, lock); err != nil {
			return session.Reply{}, err
		}
	}
	var refused []session.Refusal
	var renewed []int64
	var news []*sqldb.Call
	for i := range c.Beats {
		b := &c.Beats[i]
		r, refusal := rows[b.Session], session.ErrInProgress
		if r != nil {
			refusal = s.admit(r, b.Nonce, b.Epoch)
		}
		if refusal == 0 {
			refusal = session.Refusal(r.Beat(b.Mark, s.config.Window))
		}
		if refusal != 0 {
			if refused == nil {
				refused = make([]session.Refusal, len(c.Beats))
			}
			refused[i] = refusal
			continue
		}
		epoch, mark := r.Epoch, r.Mark
		moved := r.Accept(b.Epoch, b.Mark)
		renewed = append(renewed, r.id)
		if moved || r.Epoch != epoch {
			news = append(news, call(s.st.advance, r.id, signed(r.Epoch), signed(r.Mark), signed(mark)))
		}
		if moved {
			news = append(news, call(s.st.forget, r.id, signed(mark), signed(r.Mark)))
		}
	}
	if len(renewed) == 0 {
		return session.Reply{Beats: refused}, nil
	}
	return session.Reply{Beats: refused}, conn.Send(ctx, append([]*sqldb.Call{call(s.st.renew, s.list(renewed))}, news...)...)
}
