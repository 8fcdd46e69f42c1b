//go:build unix

// Package filelog is a log of streams in one file, whose producers may send a batch again: package session/producer
// without a database.
//
// A record of the file is a grant, or a batch with its sequence number, so both are durable in one step. The state of
// producers is rebuilt from the file when it is opened. A record that was torn by a crash is cut off: it was never
// acknowledged.
//
// It shows how small a host is: each batch waits for its own sync, and all states are in memory. There is no retention.
package filelog

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"unicode/utf8"

	"github.com/everonce/everonce/session/producer"
)

// Batch is records of a producer for one stream.
type Batch struct {
	Stream   string
	Producer producer.ID
	Epoch    int16
	First    int32 // the sequence number of the first record
	Records  [][]byte
}

// entry is a record of the file: one of both.
type entry struct {
	Name  string          `json:",omitempty"` // with a grant
	Grant *producer.Grant `json:",omitempty"`
	Batch *Batch          `json:",omitempty"`
}

// Log is an open file. It is safe for concurrent use, by one process: another one cannot open it.
type Log struct {
	mu      sync.Mutex
	file    file
	size    int64
	table   *producer.Table
	streams map[string][][]byte
	broken  error
}

// file is what is used of an *os.File.
type file interface {
	io.Reader
	io.WriterAt
	io.Closer
	Truncate(size int64) error
	Sync() error
}

// Errors.
var (
	// ErrDamaged: what was acknowledged cannot be read any more.
	ErrDamaged = errors.New("filelog: the file is damaged")
	// ErrTooLarge: the batch does not fit into a record.
	ErrTooLarge = errors.New("filelog: the batch is too large")
	// ErrName: the producer's name is no UTF-8, or longer than 255 bytes.
	ErrName = errors.New("filelog: the name is no UTF-8, or too long")
)

const (
	maxRecord = 16 << 20
	maxName   = 255
)

// fits says that a name is in JSON what it was.
func fits(name string) bool { return len(name) <= maxName && utf8.ValidString(name) }

// Open opens a file, or creates it, and rebuilds the state of its producers.
func Open(name string) (*Log, error) {
	file, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600) //nolint:gosec // the file is the caller's choice
	if err != nil {
		return nil, err
	}
	var l *Log
	if err = syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		err = fmt.Errorf("filelog: another process has the file: %w", err)
	} else if l, err = recovered(file); err == nil {
		err = syncFolder(name)
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return l, nil
}

// syncFolder makes the file's name durable.
func syncFolder(name string) error {
	folder, err := os.Open(filepath.Dir(name))
	if err != nil {
		return err
	}
	return errors.Join(folder.Sync(), folder.Close())
}

// Close closes the file.
func (l *Log) Close() error { return l.file.Close() }

// Init grants an ID and an epoch to a run of a producer; see [producer.Table.Next].
func (l *Log) Init(name string) (producer.Grant, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !fits(name) {
		return producer.Grant{}, ErrName
	}
	grant := l.table.Next(name)
	if err := l.write(&entry{Name: name, Grant: &grant}); err != nil {
		return producer.Grant{}, err
	}
	return grant, l.table.Admit(name, grant)
}

// Append appends a batch, or finds that it was appended before. If the error is nil and the decision has no Err, the
// batch is durable. After an error the outcome is unknown, and the log refuses all batches until it is opened again:
// then send the same batch again to find out. A stream name that is not valid is refused as [producer.ErrNoStream].
func (l *Log) Append(b *Batch) (producer.Decision, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.broken != nil {
		return producer.Decision{}, l.broken
	}
	if !fits(b.Stream) {
		return producer.Decision{Err: producer.ErrNoStream}, nil
	}
	return l.table.Apply(b.Stream, b.rules(), func() (int64, error) {
		if err := l.write(&entry{Batch: b}); err != nil {
			return 0, err
		}
		return l.add(b), nil
	})
}

// Read returns the records of a stream from a position on. They must not be changed.
func (l *Log) Read(stream string, from int64) [][]byte {
	l.mu.Lock()
	defer l.mu.Unlock()
	records := l.streams[stream]
	return slices.Clip(records[min(max(from, 0), int64(len(records))):])
}

// rules is what the rules look at.
func (b *Batch) rules() *producer.Batch {
	h := sha256.New()
	for _, r := range b.Records {
		h.Write(binary.AppendUvarint(nil, uint64(len(r))))
		h.Write(r)
	}
	return &producer.Batch{
		Producer: b.Producer, Epoch: b.Epoch, First: b.First, Count: len(b.Records), Sum: binary.LittleEndian.Uint64(h.Sum(nil)),
	}
}

// add returns the position of the first record.
func (l *Log) add(b *Batch) int64 {
	position := int64(len(l.streams[b.Stream]))
	for _, r := range b.Records {
		l.streams[b.Stream] = append(l.streams[b.Stream], bytes.Clone(r)) // the caller may use its buffer again
	}
	return position
}

// A record of the file is its length, the checksum of that, the checksum of the content, and the content, which is
// JSON.
const head = 12

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func sum(b []byte) uint32 { return crc32.Checksum(b, castagnoli) }

func (e *entry) encode() ([]byte, error) {
	content, err := json.Marshal(e)
	if err == nil && len(content) > maxRecord {
		err = ErrTooLarge
	}
	if err != nil {
		return nil, err
	}
	number := binary.LittleEndian.AppendUint32
	b := number(nil, uint32(len(content))) //nolint:gosec // at most maxRecord
	return append(number(number(b, sum(b)), sum(content)), content...), nil
}

// write makes a record durable. After a failed write or sync the content of the file is unknown.
func (l *Log) write(e *entry) error {
	if l.broken != nil {
		return l.broken
	}
	b, err := e.encode()
	if err != nil {
		return err
	}
	if err := l.put(b); err != nil {
		l.broken = fmt.Errorf("filelog: %w", err)
	}
	return l.broken
}

// put makes a record durable at the end.
func (l *Log) put(b []byte) error {
	_, err := l.file.WriteAt(b, l.size)
	l.size += int64(len(b))
	return errors.Join(err, l.file.Sync())
}

// recovered reads the file, and cuts off a record that was torn. The last whole record is written again where it is: if
// its sync has failed, it may be in the system's cache and not on the disk, and a mere second sync, which has nothing
// to write, succeeds. The test has a model of such a cache, no disk that fails.
func recovered(file file) (*Log, error) {
	l := &Log{file: file, table: producer.NewTable(0), streams: map[string][][]byte{}}
	b, err := io.ReadAll(file)
	if err != nil {
		return nil, err
	}
	last, end, err := l.load(b)
	if err == nil && end < len(b) {
		err = file.Truncate(int64(end))
	}
	if err != nil {
		return nil, err
	}
	l.size = int64(last)
	return l, l.put(b[last:end])
}

// load applies the records, and returns where the last whole one begins and ends.
func (l *Log) load(b []byte) (last, at int, err error) {
	for at < len(b) {
		content, err := next(b[at:])
		if err == nil && content == nil {
			break
		}
		if err == nil {
			err = l.apply(content)
		}
		if err != nil {
			return last, at, fmt.Errorf("%w: the record at %d: %w", ErrDamaged, at, err)
		}
		last, at = at, at+head+len(content)
	}
	return last, at, nil
}

// errSum: the content, or the length, is not what was written.
var errSum = errors.New("its checksum does not fit")

// next returns the content of the first record, or nil if the record was torn: the file ends within it, or it ends in
// zeros, because the size reached the disk and the content did not. If a later page of it is on the disk and the first
// is not, it is taken for damage, and the file must be cut by hand. If another record follows, this one was durable
// before: then it is not torn, but damaged.
func next(b []byte) ([]byte, error) {
	if len(bytes.TrimRight(b, "\x00")) <= head { // a content has no zeros
		return nil, nil
	}
	size := int64(binary.LittleEndian.Uint32(b))
	if sum(b[:4]) != binary.LittleEndian.Uint32(b[4:]) || size == 0 || size > maxRecord {
		return nil, errSum
	}
	if int64(len(b)) < head+size {
		return nil, nil
	}
	content := b[head : head+size]
	if sum(content) != binary.LittleEndian.Uint32(b[8:]) {
		if int64(len(b)) > head+size {
			return nil, errSum
		}
		return nil, nil
	}
	return content, nil
}

// apply does what the record did when it was written.
func (l *Log) apply(content []byte) error {
	var e entry
	if err := json.Unmarshal(content, &e); err != nil {
		return err
	}
	switch {
	case e.Grant != nil:
		return l.table.Admit(e.Name, *e.Grant)
	case e.Batch == nil || !l.table.Append(e.Batch.Stream, e.Batch.rules(), int64(len(l.streams[e.Batch.Stream]))):
		return errors.New("it cannot follow")
	}
	l.add(e.Batch)
	return nil
}
