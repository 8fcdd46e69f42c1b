package sqlsession

import (
	"context"
	"sync"

	"github.com/everonce/everonce/internal/placed"
	"github.com/everonce/everonce/session"
)

// owners remembers sessions whose secret was sent here with a command. Only those are locked, so that a client that
// knows only an ID cannot lock another's session. It is not proof: the secret is compared again under the lock.
type owners struct {
	mu     sync.Mutex
	hashes map[session.ID][16]byte
}

// maxOwners is how many sessions are remembered. A forgotten one costs a read.
const maxOwners = 1 << 18

func (o *owners) has(b *session.Beat) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	hash, known := o.hashes[b.Session]
	return known && hash == hashed(b.Nonce)
}

func (o *owners) add(b *session.Beat) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.hashes == nil {
		o.hashes = make(map[session.ID][16]byte)
	}
	for id := range o.hashes {
		if len(o.hashes) < maxOwners {
			break
		}
		delete(o.hashes, id)
	}
	o.hashes[b.Session] = hashed(b.Nonce)
}

// loadOwners reads the secrets of a command's sessions that are not known yet, outside of any transaction, where the
// read locks nothing.
func (s *Store[Tx]) loadOwners(ctx context.Context, c *session.Command) error {
	beats := c.Beats
	switch c.Op {
	case session.Register:
		return nil
	case session.Request, session.End:
		beats = []session.Beat{*beatOf(c)}
	}
	inside := placed.In(ctx) // perhaps in a transaction, which may have the only connection
	var ids []int64
	for i := range beats {
		if !s.owners.has(&beats[i]) {
			ids = append(ids, int64(beats[i].Session)) //nolint:gosec // see valid
		}
	}
	if len(ids) == 0 {
		return nil
	}
	var rows map[session.ID]*row
	var err error
	if !inside {
		rows, _, err = s.read(ctx, ids)
	}
	for i := range beats {
		if r := rows[beats[i].Session]; inside || r != nil && r.Nonce == hashed(beats[i].Nonce) {
			s.owners.add(&beats[i])
		}
	}
	return err
}

func beatOf(c *session.Command) *session.Beat {
	return &session.Beat{Session: c.Session, Nonce: c.Nonce, Epoch: c.Epoch}
}

// list returns IDs as an argument of statements that change rows.
func (s *Store[Tx]) list(ids []int64) any {
	if !s.dialect.MySQL {
		return s.dialect.Ints(ids)
	}
	rows := make([][]any, len(ids))
	for i, id := range ids {
		rows[i] = []any{id}
	}
	return s.dialect.Rows("id").Of(rows)[0]
}
