package sqlsession

import (
	"bytes"
	"context"

	"github.com/everonce/everonce/internal/sqldb"
	"github.com/everonce/everonce/session"
	"github.com/everonce/everonce/session/internal/rules"
)

// lock has a session's row for the rest of the transaction, and sends more calls behind that. r is nil where there is none.
func (s *Store[Tx]) lock(ctx context.Context, conn sqldb.Conn, c *session.Command, more ...*sqldb.Call) (r *row, refusal session.Refusal, err error) {
	var found row
	lock := s.dialect.Call(s.st.lock, int64(c.Session)).ForEach(found.scan) //nolint:gosec // see valid
	if err := conn.Send(ctx, append([]*sqldb.Call{lock}, more...)...); err != nil {
		return nil, 0, err
	}
	if lock.Affected > 0 {
		return &found, s.admit(&found, c.Nonce, c.Epoch), nil
	}
	var there, last int64
	if err := conn.Send(ctx, into(s.dialect.Call(s.st.exists, int64(c.Session)), &there, &last)); err != nil { //nolint:gosec // see valid
		return nil, 0, err
	}
	if there > 0 {
		return nil, 0, errBusy
	}
	return nil, session.Refusal(rules.Absent(uint64(c.Session), uint64(last))), nil //nolint:gosec // not negative
}

// kept is what is kept of a number.
type kept struct {
	number, size, elided int64
	sum, result          []byte
}

func (s *Store[Tx]) request(ctx context.Context, conn sqldb.Conn, c *session.Command, work func() ([]byte, error)) (session.Answer, error) {
	id, number, call := int64(c.Session), signed(c.Number), s.dialect.Call //nolint:gosec // see valid
	var before kept
	gone := int64(0) // the size of what the mark passes
	r, refusal, err := s.lock(ctx, conn, c, call(s.st.answer, id, number, signed(c.Mark)).ForEach(func(from sqldb.Row) error {
		var k kept
		if err := from.Scan(&k.number, &k.size, &k.elided, &k.sum, &k.result); err != nil {
			return err
		}
		if k.number <= signed(c.Mark) {
			gone += k.size
		}
		if k.number == number {
			before = k
		}
		return nil
	}))
	switch {
	case err != nil:
		return session.Answer{}, err
	case refusal != 0:
		return refuse(refusal)
	}
	seen := before.number > 0
	refused, next := r.Decide(&rules.Request{
		Number: c.Number, Mark: c.Mark, Seen: seen, Same: bytes.Equal(before.sum, c.Fingerprint[:]), Bytes: int(r.bytes - gone),
	}, s.config.Window, s.config.MaxBytes)
	if refused != 0 {
		return session.Answer{Err: session.Refusal(refused), Next: next}, errRefused
	}
	r.bytes -= gone
	var last []*sqldb.Call
	if mark := r.Mark; r.Accept(c.Epoch, c.Mark) {
		last = append(last, call(s.st.forget, id, signed(mark), signed(r.Mark)))
	}
	answer := session.Answer{Replayed: true, Elided: before.elided != 0, Result: before.result}
	if !seen {
		result, err := work()
		if err != nil {
			return session.Answer{}, err
		}
		answer = session.Answer{Result: result}
		large := len(result) > s.config.MaxResult
		if large {
			result = nil
		}
		r.High, r.bytes = max(r.High, c.Number), r.bytes+int64(len(result))
		last = append(last, call(s.st.keep, id, number, flag(large), c.Fingerprint[:], int64(len(result)), result))
	}
	touch := call(s.st.touch, id, signed(r.Epoch), signed(r.Mark), signed(r.High), r.bytes)
	return answer, conn.Send(ctx, append([]*sqldb.Call{touch}, last...)...)
}
