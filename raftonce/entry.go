package raftonce

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"github.com/everonce/everonce/session"
)

// An entry of the log, its numbers little endian:
//
//	"\xeeonce" version(8) term(64) stamp(64) command, as [session.Command.AppendTo] writes it
const (
	entryMagic   = "\xeeonce" // no text begins so
	entryVersion = 1
	entryHead    = len(entryMagic) + 17
)

// lastOp is the highest one that there is.
const lastOp = session.Tick

// head is what a node puts before a command.
type head struct {
	term  uint64 // in which it stamped
	stamp int64
}

func newEntry(h head, c *session.Command) ([]byte, error) {
	b := make([]byte, 0, entryHead+128+len(c.Payload))
	b = binary.LittleEndian.AppendUint64(append(append(b, entryMagic...), entryVersion), h.term)
	b = binary.LittleEndian.AppendUint64(b, uint64(h.stamp)) //nolint:gosec // its bits
	return c.AppendTo(b)
}

// parseEntry reads an entry. One of a newer version is an error that wraps session.ErrNewer.
func parseEntry(entry []byte) (h head, c session.Command, err error) {
	b, ours := bytes.CutPrefix(entry, []byte(entryMagic))
	switch {
	case !ours || len(b) == 0:
		return h, c, fmt.Errorf("%w: it is none of raftonce", ErrEntry)
	case b[0] > entryVersion:
		return h, c, fmt.Errorf("%w: %w", ErrEntry, session.ErrNewer)
	case b[0] != entryVersion || len(entry) < entryHead:
		return h, c, fmt.Errorf("%w: it has no stamp", ErrEntry)
	}
	h = head{term: binary.LittleEndian.Uint64(b[1:]), stamp: int64(binary.LittleEndian.Uint64(b[9:]))} //nolint:gosec // its bits
	c, err = session.ParseCommand(entry[entryHead:])
	if err == nil && c.Op > lastOp {
		err = session.ErrNewer
	}
	if err != nil {
		return h, c, fmt.Errorf("%w: %w", ErrEntry, err)
	}
	return h, c, nil
}
