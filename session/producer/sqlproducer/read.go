package sqlproducer

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/internal/sqldb"
	"github.com/everonce/everonce/session/producer"
)

// readBatches bounds the batches of one Read, and so its memory.
const readBatches = 64

// Record is a record of a stream.
type Record struct {
	// Position is the record's position in the stream. Positions begin at 0 and are dense.
	Position int64
	Producer producer.ID
	Epoch    int16
	Sequence int32
	// At is when the record was appended, by the store's clock.
	At    time.Time
	Value []byte
}

// ErrTruncated is wrapped by the error of [Store.Read] for a position that was truncated away. [Store.Bounds] returns
// the first position.
var ErrTruncated = errors.New("sqlproducer: the position was truncated away")

// Read returns records from a position on, at most limit of them; perhaps fewer, but an empty result only at the
// stream's end. The error wraps [ErrTruncated]; [producer.ErrNoStream]; [everonce.ErrInvalidArgument] for a position
// below 0 or a limit below 1; or [everonce.ErrStore].
func (s *Store[Tx]) Read(ctx context.Context, stream string, from int64, limit int) ([]Record, error) {
	if from < 0 || limit < 1 {
		return nil, fmt.Errorf("sqlproducer: %w: the position or the limit is negative, or the limit is 0", everonce.ErrInvalidArgument)
	}
	var records []Record
	rows := s.dialect.Call(s.st.read, stream, from, int64(min(limit, readBatches))).ForEach(func(r sqldb.Row) (err error) {
		records, err = s.unpack(r, records, from, limit)
		return err
	})
	first, _, err := s.bounds(ctx, stream, rows)
	if err != nil {
		return nil, err
	}
	if (len(records) == 0 || records[0].Position > from) && from < first {
		return nil, fmt.Errorf("%w: %d; the first is %d", ErrTruncated, from, first)
	}
	return records, nil
}

// unpack appends the requested records of a row.
func (s *Store[Tx]) unpack(r sqldb.Row, to []Record, from int64, limit int) ([]Record, error) {
	var last, count, id, epoch, sequence, at int64
	var data []byte
	if err := r.Scan(&last, &count, &id, &epoch, &sequence, &at, &data); err != nil {
		return nil, err
	}
	values, err := decode(data, count)
	if err != nil {
		return nil, err
	}
	for i, value := range values {
		position := last - count + 1 + int64(i)
		if position < from || len(to) >= limit {
			continue
		}
		to = append(to, Record{
			Position: position, Producer: producer.ID(id), Epoch: int16(epoch), //nolint:gosec // as it was sent
			Sequence: int32((sequence + int64(i)) & (1<<31 - 1)), At: time.UnixMicro(at), Value: value,
		})
	}
	return to, nil
}

// Bounds returns the first position of a stream that was not truncated away, and the position of the next record; they
// are equal if the stream has no records. The error wraps [producer.ErrNoStream], or [everonce.ErrStore].
func (s *Store[Tx]) Bounds(ctx context.Context, stream string) (first, next int64, err error) {
	return s.bounds(ctx, stream)
}

// bounds sends the calls before first, so that first is not below the bound that they saw.
func (s *Store[Tx]) bounds(ctx context.Context, stream string, before ...*sqldb.Call) (first, next int64, err error) {
	own := into(s.dialect.Call(s.st.bounds, stream), &first, &next)
	if err := s.db.Read(ctx, append(before, own)...); err != nil {
		return 0, 0, s.wrapError("read", err)
	}
	if own.Affected == 0 {
		return 0, 0, fmt.Errorf("sqlproducer: %w", producer.ErrNoStream)
	}
	return first, next, nil
}
