package raftonce

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"fmt"
	"io"

	"go.etcd.io/bbolt"

	"github.com/everonce/everonce/session"
)

// The sessions on disk: a snapshot of them, and behind it each command that was applied since, with what it was answered
// in place of its payload. The machine is a function of its commands, so these bring it back, and an entry costs no more
// than itself. When the journal is larger than the snapshot, it is folded into a new one: that is a constant for each byte.
var (
	ours       = []byte("everonce") // a bucket of all that follows
	keyApplied = []byte("applied")  // an index, 64 bits big endian
	keyBase    = []byte("sessions") // a bucket: pieces of a snapshot by their number
	keyJournal = []byte("journal")  // a bucket: entries by their index, as in the log, but the result is the payload
)

type journal struct {
	base, size int64 // in bytes, of the snapshot and of what is behind it
}

// smallJournal is not folded. Tests have a smaller one.
var smallJournal int64 = 1 << 20

func key(n uint64) []byte { return binary.BigEndian.AppendUint64(nil, n) }

func (j *journal) append(tx *bbolt.Tx, index uint64, stamp int64, c *session.Command) error {
	entry, err := newEntry(stamp, c)
	if err != nil {
		return err
	}
	j.size += int64(len(entry))
	b := tx.Bucket(ours).Bucket(keyJournal)
	b.FillPercent = 1 // it grows at its end
	return b.Put(key(index), entry)
}

// commit notes the index up to which entries are applied.
func (j *journal) commit(tx *bbolt.Tx, m *session.Machine, applied uint64) error {
	if j.size > max(smallJournal, j.base) {
		if err := j.fold(tx, m); err != nil {
			return err
		}
	}
	return tx.Bucket(ours).Put(keyApplied, key(applied))
}

// fold writes the sessions as a snapshot, behind which nothing is.
func (j *journal) fold(tx *bbolt.Tx, m *session.Machine) error {
	all, err := tx.CreateBucketIfNotExists(ours)
	if err != nil {
		return err
	}
	for _, name := range [][]byte{keyBase, keyJournal} {
		if all.Bucket(name) != nil {
			if err := all.DeleteBucket(name); err != nil {
				return err
			}
		}
		if _, err := all.CreateBucket(name); err != nil {
			return err
		}
	}
	s, err := m.Snapshot()
	if err != nil {
		return err
	}
	defer s.Release()
	pieces := bufio.NewWriterSize(&bucketWriter{bucket: all.Bucket(keyBase)}, piece)
	if j.base, err = s.WriteTo(pieces); err != nil {
		return err
	}
	j.size = 0
	return pieces.Flush()
}

// load returns the machine of that name, and the index up to which entries are in the state. It is nil in a new database.
func (j *journal) load(tx *bbolt.Tx, name string) (m *session.Machine, applied uint64, err error) {
	all := tx.Bucket(ours)
	if all == nil {
		return nil, 0, nil
	}
	base, entries, number := all.Bucket(keyBase), all.Bucket(keyJournal), all.Get(keyApplied)
	if base == nil || entries == nil || number != nil && len(number) != 8 {
		return nil, 0, fmt.Errorf("%w: the bucket %q is not as it was written", session.ErrCorrupt, ours)
	}
	if number != nil {
		applied = binary.BigEndian.Uint64(number)
	}
	var pieces []io.Reader
	*j = journal{}
	_ = base.ForEach(func(_, piece []byte) error { //nolint:errcheck // it fails only with its function
		j.base += int64(len(piece))
		pieces = append(pieces, bytes.NewReader(piece))
		return nil
	})
	if m, err = session.Restore(io.MultiReader(pieces...), name); err != nil {
		return nil, 0, err
	}
	return m, applied, entries.ForEach(func(k, v []byte) error {
		stamp, c, err := parseEntry(v)
		if err != nil {
			return fmt.Errorf("%w: the journal: %w", session.ErrCorrupt, err)
		}
		j.size += int64(len(v))
		executed := false
		m.Apply(stamp, &c, func() []byte { executed = true; return bytes.Clone(c.Payload) })
		if executed != (len(c.Payload) > 0) {
			return fmt.Errorf("%w: the journal is of another machine at entry %x", session.ErrCorrupt, k)
		}
		return nil
	})
}

// bucketWriter writes a key for each call.
type bucketWriter struct {
	bucket *bbolt.Bucket
	next   uint64
}

func (w *bucketWriter) Write(b []byte) (int, error) {
	w.next++
	return len(b), w.bucket.Put(key(w.next), bytes.Clone(b))
}
