package sqlsession

import (
	"bytes"
	"context"

	"github.com/everonce/everonce/internal/sqldb"
	"github.com/everonce/everonce/session"
	"github.com/everonce/everonce/session/internal/rules"
)

// lock locks a session's row for the rest of the transaction, and sends more calls with it.
func (s *Store[Tx]) lock(ctx context.Context, conn sqldb.Conn, c *session.Command, more ...*sqldb.Call) (*row, session.Refusal, error) {
	var found row
	lock := s.dialect.Call(s.st.lock, int64(c.Session)).ForEach(found.scan) //nolint:gosec // see valid
	first := append([]*sqldb.Call{lock}, more...)
	if s.dialect.MySQL { // no additional round trips, and at serializable a read would wait for the session's lock
		first = first[:1]
	}
	if err := conn.Send(ctx, first...); err != nil {
		return nil, 0, err
	}
	if lock.Affected == 0 {
		return nil, 0, errUnlocked
	}
	refusal := s.admit(&found, c.Nonce, c.Epoch)
	if refusal == 0 && len(first) <= len(more) {
		return &found, 0, conn.Send(ctx, more...)
	}
	return &found, refusal, nil
}

// request executes a request.
func (s *Store[Tx]) request(ctx context.Context, conn sqldb.Conn, c *session.Command, work func() ([]byte, error)) (session.Reply, error) {
	h := &held{kept: make(map[int64]kept, 2)}
	r, refusal, err := s.lock(ctx, conn, c, s.reading(h, c))
	switch {
	case err != nil:
		return session.Reply{}, err
	case refusal != 0:
		return refuse(refusal)
	}
	h.row, h.before = r, r.Mark
	answer, err := s.execute(h, c, work)
	if err != nil {
		return answer, err
	}
	return answer, conn.Send(ctx, s.writing(h)...)
}

// held is a session that a transaction has locked, with the results that its requests may need.
type held struct {
	*row
	before uint64 // its mark in the table
	kept   map[int64]kept
	fresh  []kept
	moved  bool // it was at least renewed
}

// kept is the stored data of a number.
type kept struct {
	number, size, elided int64
	sum, result          []byte
}

// reading returns the call that reads the stored data for a request: its own number, and those that its mark passes.
func (s *Store[Tx]) reading(h *held, c *session.Command) *sqldb.Call {
	return s.dialect.Call(s.st.answer, int64(c.Session), signed(c.Number), signed(c.Mark)).ForEach(func(from sqldb.Row) error { //nolint:gosec // see valid
		var k kept
		err := from.Scan(&k.number, &k.size, &k.elided, &k.sum, &k.result)
		h.kept[k.number] = k
		return err
	})
}

// readingAll is reading for many requests.
func (s *Store[Tx]) readingAll(sessions map[int64]*held, rows [][]any) *sqldb.Call {
	return s.call(s.st.answers, rows).ForEach(func(from sqldb.Row) error {
		var k kept
		var id, asked int64
		err := from.Scan(&id, &asked, &k.number, &k.size, &k.elided, &k.sum, &k.result)
		of := sessions[id].kept
		if _, there := of[k.number]; !there || k.number == asked { // the others are read without their results
			of[k.number] = k
		}
		return err
	})
}

func (s *Store[Tx]) call(m many, rows [][]any) *sqldb.Call {
	return s.dialect.Call(m.Statement, m.rows.Of(rows)...)
}

// execute decides on a request, and calls the work if it must be executed.
func (s *Store[Tx]) execute(h *held, c *session.Command, work func() ([]byte, error)) (session.Reply, error) {
	number := signed(c.Number)
	before, seen := h.kept[number]
	gone := int64(0) // size of the results that the mark passes
	for _, k := range h.kept {
		if k.number > signed(h.Mark) && k.number <= signed(c.Mark) {
			gone += k.size
		}
	}
	refused, next := h.Decide(&rules.Request{
		Number: c.Number, Mark: c.Mark, Seen: seen, Same: bytes.Equal(before.sum, c.Fingerprint[:]), Bytes: int(h.bytes - gone),
	}, s.config.Window, s.config.MaxBytes)
	if refused != 0 {
		return session.Reply{Err: session.Refusal(refused), Next: next}, errRefused
	}
	answer := session.Reply{Replayed: true, Elided: before.elided != 0, Result: bytes.Clone(before.result)}
	if !seen {
		result, err := work()
		if err != nil {
			return session.Reply{}, err
		}
		answer = session.Reply{Result: result}
		large := len(result) > s.config.MaxResult
		if large {
			result = nil
		}
		k := kept{number: number, size: int64(len(result)), elided: flag(large), sum: c.Fingerprint[:], result: result}
		h.kept[number], h.fresh = k, append(h.fresh, k)
		h.High, h.bytes = max(h.High, c.Number), h.bytes+k.size
	}
	h.bytes -= gone
	h.Accept(c.Epoch, c.Mark)
	h.moved = true
	return answer, nil
}

// writing returns the calls that store a session's changes. Insertions come first: a deletion after them ends at a row
// of the same session, and locks no gap up to another session's row.
func (s *Store[Tx]) writing(h *held) []*sqldb.Call {
	call, mark := s.dialect.Call, signed(h.Mark)
	calls := []*sqldb.Call{call(s.st.touch, h.id, signed(h.Epoch), mark, signed(h.High), h.bytes)}
	for _, k := range h.fresh {
		calls = append(calls, call(s.st.keep, h.id, k.number, k.elided, k.sum, k.size, k.result))
	}
	if h.Mark > h.before {
		calls = append(calls, call(s.st.forget, h.id, signed(h.before), mark))
	}
	return calls
}

// keptAtOnce is about how many bytes of results one statement writes.
const keptAtOnce = 1 << 20

// writingAll is writing for many sessions.
func (s *Store[Tx]) writingAll(sessions []*held) (calls []*sqldb.Call) {
	var touched, forgotten, fresh [][]any
	size := int64(0)
	for _, h := range sessions {
		if !h.moved {
			continue
		}
		mark := signed(h.Mark)
		touched = append(touched, []any{h.id, signed(h.Epoch), mark, signed(h.High), h.bytes})
		if h.Mark > h.before {
			forgotten = append(forgotten, []any{h.id, signed(h.before), mark})
		}
		for _, k := range h.fresh {
			if k.number <= mark { // a later request of the transaction has passed it
				continue
			}
			fresh = append(fresh, []any{h.id, k.number, k.elided, k.sum, k.size, k.result})
			if size += k.size; size > keptAtOnce {
				calls, fresh, size = append(calls, s.call(s.st.keepAll, fresh)), nil, 0
			}
		}
	}
	if len(touched) == 0 {
		return nil
	}
	calls = append([]*sqldb.Call{s.call(s.st.touchAll, touched)}, calls...)
	if len(fresh) > 0 {
		calls = append(calls, s.call(s.st.keepAll, fresh))
	}
	if len(forgotten) > 0 {
		calls = append(calls, s.call(s.st.forgetAll, forgotten))
	}
	return calls
}
