package sqlsession

import (
	"context"

	"github.com/everonce/everonce/session"
	"github.com/everonce/everonce/session/internal/rules"
)

// unlocked returns why the session of a command could not be locked. It reads outside of any transaction: a
// transaction's snapshot may be older, and a read in one may wait for the lock of the row.
func (s *Store[Tx]) unlocked(ctx context.Context, c *session.Command, _ Work[Tx]) (session.Reply, error) {
	refused := []session.Refusal{session.ErrInProgress}
	switch err := s.unlockedAll(ctx, []session.Beat{*beatOf(c)}, refused); {
	case err != nil:
		return session.Reply{}, err
	case refused[0] == session.ErrInProgress:
		return session.Reply{}, errBusy
	}
	return refuse(refused[0])
}

// unlockedAll does the same for the sessions that are refused as in progress.
func (s *Store[Tx]) unlockedAll(ctx context.Context, beats []session.Beat, refused []session.Refusal) error {
	var ids []int64
	for i, refusal := range refused {
		if refusal == session.ErrInProgress {
			ids = append(ids, int64(beats[i].Session)) //nolint:gosec // see valid
		}
	}
	if len(ids) == 0 {
		return nil
	}
	rows, last, err := s.read(ctx, ids)
	if err != nil {
		return err
	}
	for i := range refused {
		if refused[i] == session.ErrInProgress {
			refused[i] = s.why(rows[beats[i].Session], &beats[i], last)
		}
	}
	return nil
}

func (s *Store[Tx]) why(r *row, b *session.Beat, last int64) session.Refusal {
	switch {
	case r == nil:
		return session.Refusal(rules.Absent(uint64(b.Session), uint64(last))) //nolint:gosec // not negative
	case r.Nonce != hashed(b.Nonce):
		return s.admit(r, b.Nonce, b.Epoch)
	}
	refusal := session.Refusal(r.Admit(r.Nonce, b.Epoch)) // its lease may be over: the request in progress may renew it
	if refusal == 0 {
		refusal = session.Refusal(r.Beat(b.Mark, s.config.Window))
	}
	if refusal == 0 {
		refusal = session.ErrInProgress
	}
	return refusal
}

// read returns rows without locking them, and the highest ID that was given before.
func (s *Store[Tx]) read(ctx context.Context, ids []int64) (rows map[session.ID]*row, last int64, err error) {
	rows = make(map[session.ID]*row, len(ids))
	read := s.dialect.Call(s.st.readAll, s.dialect.Ints(ids)).ForEach(intoRows(rows))
	bounded, cancel := context.WithTimeout(ctx, withoutWorkTimeout)
	defer cancel()
	if err = s.db.Read(bounded, into(s.dialect.Call(s.st.lastID), &last), read); err != nil && ctx.Err() != nil { // not a failure of the store
		return nil, 0, context.Cause(ctx)
	}
	return rows, last, s.wrapError("apply", err)
}
