package sqlproducer

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"

	"github.com/everonce/everonce/internal/sqldb"
	"github.com/everonce/everonce/session/producer"
)

// Batch holds records for one stream, which are appended together.
type Batch struct {
	Stream   string
	Producer producer.ID
	Epoch    int16
	// First is the sequence number of the first record; see [producer.Batch].
	First   int32
	Records [][]byte
}

// Append appends a batch, or finds that it was appended before, in a transaction that everonce begins and commits. If
// the error is nil and the decision has no Err, the batch is durable at Position: acknowledge it.
//
// The sender of an ID is not verified: see [producer.ID].
//
// A refusal is in the decision, and nothing was written then. The error is the store's, and the decision is then empty:
// [everonce.ErrStore], or [everonce.ErrOutcomeUnknown] if the commit's answer was lost. Send the same batch again to
// find out.
func (s *Store[Tx]) Append(ctx context.Context, b *Batch) (answer producer.Decision, err error) {
	p, data, refusal := s.pack(b)
	if refusal != 0 {
		return producer.Decision{Err: refusal}, nil
	}
	err = s.inTx(ctx, "append", func(ctx context.Context, conn sqldb.Conn) (err error) {
		if answer, err = s.append(ctx, conn, b.Stream, p, data); err == nil && answer.Err != 0 {
			err = errRefused
		}
		return err
	})
	if err != nil && !errors.Is(err, errRefused) {
		return producer.Decision{}, err
	}
	return answer, nil
}

// AppendTx is [Store.Append] in a transaction of the caller: the batch is durable when that commits, so acknowledge it
// then. The stream is locked until then: other appends to it wait. A refusal is also returned as the error, a
// [producer.Refusal], so that a transaction which returns it has no effect. A duplicate is not an error: if the
// transaction has other effects, skip them then, because they were committed with the batch before.
//
// A transaction may be the victim of a deadlock, less often if it appends to streams in the order of their names: be
// ready to run it again. If its reads come from a snapshot taken at its beginning (REPEATABLE READ), it must begin
// after the producer's grant; otherwise the refusal is [producer.ErrUnknown]. An error of the store may have ended the
// transaction: roll it back.
func (s *Store[Tx]) AppendTx(ctx context.Context, tx Tx, b *Batch) (answer producer.Decision, err error) {
	p, data, refusal := s.pack(b)
	if refusal != 0 {
		return producer.Decision{Err: refusal}, refusal
	}
	err = s.inCallerTx(ctx, tx, "append", func(ctx context.Context, conn sqldb.Conn) (err error) {
		answer, err = s.append(ctx, conn, b.Stream, p, data)
		return err
	})
	if err != nil {
		return producer.Decision{}, err
	}
	return answer, answer.Err.Or()
}

// pack encodes the records, and refuses records that are not valid.
func (s *Store[Tx]) pack(b *Batch) (*producer.Batch, []byte, producer.Refusal) {
	if b == nil || b.Producer < 1 || b.Epoch < 0 || b.First < 0 || len(b.Records) == 0 {
		return nil, nil, producer.ErrInvalid
	}
	if b.Stream == "" || !fits(b.Stream) {
		return nil, nil, producer.ErrNoStream
	}
	if len(b.Records) > s.opts.MaxRecords {
		return nil, nil, producer.ErrTooLarge
	}
	size := 0
	for _, r := range b.Records {
		if size += len(r); size > s.opts.MaxBytes {
			return nil, nil, producer.ErrTooLarge
		}
	}
	data := encode(b.Records, size)
	sum := sha256.Sum256(data)
	return &producer.Batch{
		Producer: b.Producer, Epoch: b.Epoch, First: b.First, Count: len(b.Records), Sum: binary.LittleEndian.Uint64(sum[:]),
	}, data, 0
}

func (s *Store[Tx]) append(ctx context.Context, conn sqldb.Conn, stream string, b *producer.Batch, data []byte) (producer.Decision, error) {
	call, id := s.dialect.Call, int64(b.Producer)
	var first, next, granted, named, last, now int64
	var stored []byte
	lock := into(call(s.st.lockStream, stream), &first, &next)
	window := into(call(s.st.lockWindow, stream, id), &granted, &named, &last, &now, &stored)
	if err := conn.Send(ctx, lock, window); err != nil {
		return producer.Decision{}, err
	}
	if lock.Affected == 0 {
		return producer.Decision{Err: producer.ErrNoStream}, nil
	}
	var state producer.State
	var err error
	known := window.Affected > 0
	if known {
		state, err = producer.ParseState(stored)
	} else { // its first batch in the stream: lock out grants
		var highest int64
		of := into(call(s.st.lockProducer, id), &granted, &named)
		ids := into(call(s.st.lastID), &highest)
		err = conn.Send(ctx, of, ids)
		switch {
		case err != nil:
		case ids.Affected == 0:
			err = errState
		case of.Affected == 0:
			return producer.Decision{Err: producer.Absent(b.Producer, producer.ID(highest))}, nil
		}
	}
	if err != nil {
		return producer.Decision{}, err
	}
	grant := producer.Grant{Producer: b.Producer, Epoch: int16(granted), Named: named != 0 || s.opts.GrantedEpochs} //nolint:gosec // as it was granted
	if refusal := grant.Admit(b.Epoch); refusal != 0 {
		return producer.Decision{Err: refusal}, nil
	}
	if answer := state.Check(b); answer.Err != 0 || answer.Duplicate {
		return answer, nil
	}
	state.Append(b, next, s.opts.Window)
	end := next + int64(b.Count)
	calls := []*sqldb.Call{
		call(s.st.advance, stream, end),
		call(s.st.put, stream, end-1, int64(b.Count), id, int64(b.Epoch), int64(b.First), data),
	}
	if known {
		calls = append(calls, call(s.st.keep, stream, id, state.AppendTo(nil)))
	} else {
		calls = append(calls, call(s.st.open, stream, id, granted, named, state.AppendTo(nil)))
	}
	if last>>eraBits != now>>eraBits || !known {
		calls = append(calls, call(s.st.touch, id))
	}
	return producer.Decision{Position: next}, conn.Send(ctx, calls...)
}
