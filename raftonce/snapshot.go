package raftonce

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/hashicorp/raft"

	"github.com/everonce/everonce/session"
)

// The format of snapshots: the sessions, in pieces with a length, so that the state machine's snapshot can be found
// while both are streams. Lengths have 32 bits, little endian.
//
//	"everonce-raftonce" version(8)
//	pieces of the sessions' snapshot: length, bytes; the last has the length 0
//	the snapshot of the state machine
const (
	magic   = "everonce-raftonce\x01"
	piece   = 1 << 16
	tooLong = 1 << 20
)

type snapshot struct {
	mu       *sync.Mutex
	sessions *session.Snapshot
	inner    raft.FSMSnapshot
}

// Snapshot returns the current state: sessions and state machine. It is written while entries are applied.
func (f *FSM) Snapshot() (raft.FSMSnapshot, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	sessions, err := f.machine.Snapshot()
	if err != nil {
		return nil, err
	}
	inner, err := f.inner.Snapshot()
	if err != nil {
		sessions.Release()
		return nil, err
	}
	f.snapped.Store(true)
	return &snapshot{mu: &f.mu, sessions: sessions, inner: inner}, nil
}

// Persist writes the sessions, and then lets the inner state machine write its snapshot and close the sink.
func (s *snapshot) Persist(sink raft.SnapshotSink) error {
	if err := s.write(sink); err != nil {
		return errors.Join(fmt.Errorf("raftonce: write the sessions of a snapshot: %w", err), sink.Cancel())
	}
	return s.inner.Persist(sink)
}

func (s *snapshot) write(to io.Writer) error {
	if _, err := to.Write([]byte(magic)); err != nil {
		return err
	}
	pieces := bufio.NewWriterSize(pieceWriter{to}, piece)
	if _, err := s.sessions.WriteTo(pieces); err != nil {
		return err
	}
	if err := pieces.Flush(); err != nil {
		return err
	}
	_, err := pieceWriter{to}.Write(nil)
	return err
}

// Release ends the use of the snapshot.
func (s *snapshot) Release() {
	s.mu.Lock()
	s.sessions.Release()
	s.mu.Unlock()
	s.inner.Release()
}

// Restore replaces the sessions and the state machine by a snapshot. The error wraps [ErrSnapshot], [ErrOtherConfig] or
// an error of [session.Restore], or is the state machine's.
func (f *FSM) Restore(from io.ReadCloser) error {
	head := make([]byte, len(magic))
	if _, err := io.ReadFull(from, head); err != nil || string(head) != magic {
		return errors.Join(fmt.Errorf("%w, or its version is unknown", ErrSnapshot), err)
	}
	pieces := &pieceReader{from: from}
	machine, err := restore(pieces, f.config)
	if err != nil {
		return err
	}
	if !pieces.done {
		return fmt.Errorf("%w: it is truncated", ErrSnapshot)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.inner.Restore(from); err != nil {
		return err
	}
	f.use(machine)
	f.snapped.Store(true)
	return nil
}

// pieceWriter writes each write as a piece.
type pieceWriter struct{ to io.Writer }

func (w pieceWriter) Write(b []byte) (n int, err error) {
	for first := true; first || len(b) > 0; first = false {
		part := b[:min(len(b), tooLong)]
		if _, err := w.to.Write(binary.LittleEndian.AppendUint32(nil, uint32(len(part)))); err != nil { //nolint:gosec // at most tooLong
			return n, err
		}
		m, err := w.to.Write(part)
		n += m
		if err != nil {
			return n, err
		}
		b = b[len(part):]
	}
	return n, nil
}

// pieceReader reads to the end of the pieces, and no further.
type pieceReader struct {
	from io.Reader
	left int // bytes left in the piece
	done bool
}

func (r *pieceReader) Read(b []byte) (int, error) {
	if r.done {
		return 0, io.EOF
	}
	if r.left == 0 {
		var head [4]byte
		if _, err := io.ReadFull(r.from, head[:]); err != nil {
			return 0, io.ErrUnexpectedEOF
		}
		n := binary.LittleEndian.Uint32(head[:])
		if n > tooLong {
			return 0, fmt.Errorf("%w: a piece of %d bytes", ErrSnapshot, n)
		}
		if r.left = int(n); n == 0 {
			r.done = true
			return 0, io.EOF
		}
	}
	n, err := r.from.Read(b[:min(len(b), r.left)])
	r.left -= n
	if errors.Is(err, io.EOF) {
		err = nil // the next call reports missing bytes
		if n == 0 {
			err = io.ErrUnexpectedEOF
		}
	}
	return n, err
}
