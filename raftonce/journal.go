package raftonce

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"

	"go.etcd.io/bbolt"

	"github.com/everonce/everonce/session"
)

// The sessions on disk are a snapshot, followed by each command that was applied since, with its reply in place of its
// payload. The machine's state is a function of its commands, so these restore it, and an entry costs only its own
// size. When the journal is larger than the snapshot, it is folded into a new snapshot: a constant cost for each byte.
//
// They are in one bucket. Numbers have 64 bits, big endian; lengths have 32, little endian. A commit writes at the end
// of the bucket, in few pages, which pieces of this size fill.
//
//	's' number: a piece of the snapshot
//	't' index: commands of the log up to that entry: length, stamp(64), and the command with the result in place of the payload
//	'u': the index up to which entries are applied
var ours = []byte("everonce")

const chunk = 400

func key(kind byte, n uint64) []byte { return binary.BigEndian.AppendUint64([]byte{kind}, n) }

var keyApplied = []byte{'u'}

// smallJournal is the size below which a journal is not folded. Tests lower it.
var smallJournal int64 = 1 << 20

type journal struct {
	base, size int64 // bytes of the snapshot, and of the commands after it
}

// record is a command in the journal.
type record struct {
	index   uint64
	command []byte // prefixed with its stamp
}

func newRecord(index uint64, stamp int64, c *session.Command) (record, error) {
	b, err := c.AppendTo(binary.LittleEndian.AppendUint64(nil, uint64(stamp))) //nolint:gosec // its bits
	return record{index, b}, err
}

// add appends the commands that a batch has applied, up to an index.
func (j *journal) add(tx *bbolt.Tx, m *session.Machine, records []record, applied uint64) error {
	b := tx.Bucket(ours)
	b.FillPercent = 1 // keys are appended in order
	var value []byte
	for i, r := range records {
		value = append(binary.LittleEndian.AppendUint32(value, uint32(len(r.command))), r.command...) //nolint:gosec // at most an entry of a log
		if len(value) < chunk && i < len(records)-1 {
			continue
		}
		if err := b.Put(key('t', r.index), value); err != nil {
			return err
		}
		j.size += int64(len(value))
		value = nil
	}
	if j.size > max(smallJournal, j.base) {
		return j.fold(tx, m, applied)
	}
	return b.Put(keyApplied, key('u', applied)[1:])
}

// fold replaces the journal by a snapshot of the sessions.
func (j *journal) fold(tx *bbolt.Tx, m *session.Machine, applied uint64) error {
	if tx.Bucket(ours) != nil {
		if err := tx.DeleteBucket(ours); err != nil {
			return err
		}
	}
	b, err := tx.CreateBucket(ours)
	if err != nil {
		return err
	}
	b.FillPercent = 1
	s, err := m.Snapshot()
	if err != nil {
		return err
	}
	defer s.Release()
	pieces := bufio.NewWriterSize(&pieceKeys{bucket: b}, chunk)
	if j.base, err = s.WriteTo(pieces); err != nil {
		return err
	}
	j.size = 0
	return errors.Join(pieces.Flush(), b.Put(keyApplied, key('u', applied)[1:]))
}

// pieceKeys stores each write as a piece of a snapshot.
type pieceKeys struct {
	bucket *bbolt.Bucket
	next   uint64
}

func (w *pieceKeys) Write(b []byte) (int, error) {
	for part := range slices.Chunk(b, chunk) {
		w.next++
		if err := w.bucket.Put(key('s', w.next), bytes.Clone(part)); err != nil {
			return 0, err
		}
	}
	return len(b), nil
}

// load returns the machine, and the index up to which entries are in the state. m is nil if the database is new.
func (j *journal) load(tx *bbolt.Tx, config session.Config) (m *session.Machine, applied uint64, err error) {
	b := tx.Bucket(ours)
	if b == nil {
		return nil, 0, nil
	}
	number := b.Get(keyApplied)
	if len(number) != 8 {
		return nil, 0, fmt.Errorf("%w: the bucket %q was changed", session.ErrCorrupt, ours)
	}
	*j = journal{}
	c := b.Cursor()
	k, v := c.First()
	var pieces []io.Reader
	for ; len(k) > 0 && k[0] == 's'; k, v = c.Next() {
		pieces = append(pieces, bytes.NewReader(v))
		j.base += int64(len(v))
	}
	if m, err = restore(io.MultiReader(pieces...), config); err != nil {
		return nil, 0, err
	}
	for ; len(k) > 0 && k[0] == 't'; k, v = c.Next() {
		j.size += int64(len(v))
		for len(v) > 0 {
			if v, err = applyFirst(m, v); err != nil {
				return nil, 0, fmt.Errorf("%w: the journal at %x: %w", session.ErrCorrupt, k, err)
			}
		}
	}
	return m, binary.BigEndian.Uint64(number), nil
}

// applyFirst applies the first command of a part of the journal, and returns the rest.
func applyFirst(m *session.Machine, v []byte) ([]byte, error) {
	if len(v) < 12 || len(v)-4 < int(binary.LittleEndian.Uint32(v)) || binary.LittleEndian.Uint32(v) < 8 {
		return nil, errors.New("it is truncated")
	}
	command, rest := v[4:4+binary.LittleEndian.Uint32(v)], v[4+binary.LittleEndian.Uint32(v):]
	stamp := int64(binary.LittleEndian.Uint64(command)) //nolint:gosec // its bits
	c, err := session.ParseCommand(command[8:])
	if err != nil {
		return nil, err
	}
	executed := false
	m.Apply(stamp, &c, func() []byte { executed = true; return bytes.Clone(c.Payload) })
	if executed != (len(c.Payload) > 0) {
		return nil, errors.New("it belongs to another machine")
	}
	return rest, nil
}
