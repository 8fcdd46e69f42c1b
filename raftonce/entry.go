package raftonce

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"fmt"

	"github.com/everonce/everonce/session"
)

// An entry of the log, its numbers little endian:
//
//	"\xeeonce" version(8) term(64) stamp(64) config(32) command, as [session.Command.AppendTo] writes it
const (
	entryMagic   = "\xeeonce" // never the start of UTF-8 text
	entryVersion = 1
	entryHead    = len(entryMagic) + 21
)

// lastOp is the highest operation of this version.
const lastOp = session.Tick

// head is the prefix that a node adds to a command.
type head struct {
	term   uint64 // the term of the stamp
	stamp  int64
	config uint32 // hash of its Config
}

// sumOf returns a short hash of a Config.
func sumOf(c session.Config) uint32 {
	all := fmt.Sprintf("%q %d %d %d %d %d %d %t", c.Name, c.Lease, c.Window, c.MaxResult, c.MaxBytes, c.MaxSessions, c.PerPrincipal, c.Evict)
	sum := sha256.Sum256([]byte(all))
	return binary.LittleEndian.Uint32(sum[:])
}

func newEntry(h head, c *session.Command) ([]byte, error) {
	b := make([]byte, 0, entryHead+128+len(c.Payload))
	b = binary.LittleEndian.AppendUint64(append(append(b, entryMagic...), entryVersion), h.term)
	b = binary.LittleEndian.AppendUint64(b, uint64(h.stamp)) //nolint:gosec // its bits
	b = binary.LittleEndian.AppendUint32(b, h.config)
	return c.AppendTo(b)
}

// parseEntry parses an entry. The error for an entry of a newer version wraps session.ErrNewer.
func parseEntry(entry []byte) (h head, c session.Command, err error) {
	b, ours := bytes.CutPrefix(entry, []byte(entryMagic))
	switch {
	case !ours || len(b) == 0:
		return h, c, fmt.Errorf("%w: it was not written by raftonce", ErrEntry)
	case b[0] > entryVersion:
		return h, c, fmt.Errorf("%w: %w", ErrEntry, session.ErrNewer)
	case b[0] != entryVersion || len(entry) < entryHead:
		return h, c, fmt.Errorf("%w: it has no stamp", ErrEntry)
	}
	number := binary.LittleEndian.Uint64
	h = head{term: number(b[1:]), stamp: int64(number(b[9:])), config: binary.LittleEndian.Uint32(b[17:])} //nolint:gosec // its bits
	c, err = session.ParseCommand(entry[entryHead:])
	if err == nil && c.Op > lastOp {
		err = session.ErrNewer
	}
	if err != nil {
		return h, c, fmt.Errorf("%w: %w", ErrEntry, err)
	}
	return h, c, nil
}
