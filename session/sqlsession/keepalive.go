package sqlsession

import (
	"context"

	"github.com/everonce/everonce/internal/sqldb"
	"github.com/everonce/everonce/session"
	"github.com/everonce/everonce/session/internal/rules"
)

// keepAlive renews sessions: it locks all by one statement, and renews all by another; only a mark or an epoch that is new costs
// one more. A session whose request is being executed is renewed by that, at its end, and its mark comes again.
func (s *Store[Tx]) keepAlive(ctx context.Context, conn sqldb.Conn, c *session.Command) (session.Answer, error) {
	if len(c.Beats) == 0 {
		return session.Answer{}, nil
	}
	call := s.dialect.Call
	ids := make([]int64, len(c.Beats))
	for i := range c.Beats {
		ids[i] = int64(c.Beats[i].Session) //nolint:gosec // see valid
	}
	all := s.dialect.Ints(ids)
	rows, locked := make(map[session.ID]*row, len(ids)), make(map[session.ID]bool, len(ids))
	gather := func(own bool) func(sqldb.Row) error {
		return func(from sqldb.Row) error {
			r := new(row)
			err := r.scan(from)
			if id := session.ID(r.id); rows[id] == nil { //nolint:gosec // not negative
				rows[id], locked[id] = r, own
			}
			return err
		}
	}
	var last int64
	lock := call(s.st.lockAll, all).ForEach(gather(true))
	err := conn.Send(ctx, lock)
	if err == nil && int(lock.Affected) < len(ids) {
		err = conn.Send(ctx, call(s.st.readAll, all).ForEach(gather(false)), into(call(s.st.lastID), &last))
	}
	if err != nil {
		return session.Answer{}, err
	}
	var refused []session.Refusal
	var renewed []int64
	var news []*sqldb.Call
	for i := range c.Beats {
		b := &c.Beats[i]
		r := rows[b.Session]
		refusal := session.Refusal(rules.Absent(uint64(b.Session), uint64(last))) //nolint:gosec // not negative
		switch {
		case r == nil:
		case locked[b.Session]:
			refusal = s.admit(r, b.Nonce, b.Epoch)
		default: // its lease may be over: what is executed renews it
			refusal = session.Refusal(r.Admit(hashed(b.Nonce), b.Epoch))
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
		if !locked[b.Session] {
			continue
		}
		renewed = append(renewed, r.id)
		if moved || r.Epoch != epoch {
			news = append(news, call(s.st.advance, r.id, signed(r.Epoch), signed(r.Mark), signed(mark)))
		}
		if moved {
			news = append(news, call(s.st.forget, r.id, signed(mark), signed(r.Mark)))
		}
	}
	if len(renewed) > 0 {
		err = conn.Send(ctx, append([]*sqldb.Call{call(s.st.renew, s.dialect.Ints(renewed))}, news...)...)
	}
	return session.Answer{Beats: refused}, err
}
