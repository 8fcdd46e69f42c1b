package sqlproducer

import (
	"context"
	"errors"
	"fmt"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/internal/sqldb"
	"github.com/everonce/everonce/session/producer"
)

// InitProducer grants an ID and an epoch to a run of a producer. A producer without a name gets a new ID. A producer
// with a name, Kafka's transactional.id, gets its previous ID and the next epoch: from then on earlier runs are
// [producer.ErrFenced]. IDs are never used again. Sequences begin at 0 in each stream, and records of an earlier run
// are not compared with this one's. A producer that keeps its grant, with the numbers of its unacknowledged batches,
// needs no other grant after a restart.
//
// A caller fences the producer that it names: bind names, and the granted IDs, to the authenticated caller.
//
// The error wraps [everonce.ErrInvalidArgument] for a name that is too long or not UTF-8; [everonce.ErrStore]; or
// [everonce.ErrOutcomeUnknown] if the commit's answer was lost: call it again, for a higher epoch or another ID.
func (s *Store[Tx]) InitProducer(ctx context.Context, name string) (g producer.Grant, err error) {
	if !fits(name) {
		return g, fmt.Errorf("sqlproducer: %w: the producer's name is longer than %d bytes, or not UTF-8 without NUL", everonce.ErrInvalidArgument, MaxName)
	}
	err = s.inTx(ctx, "grant", func(ctx context.Context, conn sqldb.Conn) (err error) {
		g, err = s.grant(ctx, conn, name)
		return err
	})
	if err != nil {
		return producer.Grant{}, err
	}
	return g, nil
}

// errState says that it is unknown which IDs were granted.
var errState = errors.New("sqlproducer: the row of the table producer_state is missing")

func (s *Store[Tx]) grant(ctx context.Context, conn sqldb.Conn, name string) (producer.Grant, error) {
	call := s.dialect.Call
	var last, id, epoch int64
	state := into(call(s.st.lockState), &last)
	calls := []*sqldb.Call{state}
	if name != "" {
		calls = append(calls, into(call(s.st.byName, name), &id, &epoch))
	}
	if err := conn.Send(ctx, calls...); err != nil {
		return producer.Grant{}, err
	}
	if state.Affected == 0 {
		return producer.Grant{}, errState
	}
	if id > 0 && epoch < producer.MaxEpoch {
		epoch++
		err := conn.Send(ctx, call(s.st.raise, id, epoch), call(s.st.raised, id, epoch))
		return producer.Grant{Producer: producer.ID(id), Epoch: int16(epoch), Named: true}, err //nolint:gosec // at most MaxEpoch
	}
	if id > 0 { // its epochs are used up
		if err := conn.Send(ctx, call(s.st.dropWindows, id), call(s.st.drop, id)); err != nil {
			return producer.Grant{}, err
		}
	}
	last++
	var named any // NULL: a unique index allows many
	if name != "" {
		named = name
	}
	err := conn.Send(ctx, call(s.st.insert, last, named), call(s.st.granted, last))
	return producer.Grant{Producer: producer.ID(last), Named: name != ""}, err
}
