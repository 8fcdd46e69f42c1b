package raftonce

import "io"

// NewEntry is an entry as a leader appends it.
var NewEntry = newEntry

// RestoreWithoutSessions is Restore with a fault: the sessions are outside of the snapshot, and stay as they are.
func (f *FSM) RestoreWithoutSessions(from io.ReadCloser) error {
	if _, err := io.CopyN(io.Discard, from, int64(len(magic))); err != nil {
		return err
	}
	if _, err := io.Copy(io.Discard, &pieceReader{from: from}); err != nil {
		return err
	}
	return f.inner.Restore(from)
}
