package raftonce

import (
	"encoding/binary"
	"fmt"

	"github.com/everonce/everonce/session"
)

// An entry of the log, its numbers little endian:
//
//	version(8) term(64) stamp(64) command, as [session.Command.AppendTo] writes it
const (
	entryVersion = 1
	entryHead    = 17
)

// head is what a node puts before a command.
type head struct {
	term  uint64 // in which it stamped
	stamp int64
}

func newEntry(h head, c *session.Command) ([]byte, error) {
	b := make([]byte, 0, entryHead+128+len(c.Payload))
	b = binary.LittleEndian.AppendUint64(append(b, entryVersion), h.term)
	b = binary.LittleEndian.AppendUint64(b, uint64(h.stamp)) //nolint:gosec // its bits
	return c.AppendTo(b)
}

func parseEntry(b []byte) (h head, c session.Command, err error) {
	if len(b) < entryHead || b[0] != entryVersion {
		return h, c, fmt.Errorf("%w: it has no stamp", ErrEntry)
	}
	h = head{term: binary.LittleEndian.Uint64(b[1:]), stamp: int64(binary.LittleEndian.Uint64(b[9:]))} //nolint:gosec // its bits
	if c, err = session.ParseCommand(b[entryHead:]); err != nil {
		return h, c, fmt.Errorf("%w: %w", ErrEntry, err)
	}
	return h, c, nil
}
