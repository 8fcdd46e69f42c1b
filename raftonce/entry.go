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
	entryMagic   = "\xeeonce" // no text begins so
	entryVersion = 1
	entryHead    = len(entryMagic) + 21
)

// lastOp is the highest one that there is.
const lastOp = session.Tick

// head is what a node puts before a command.
type head struct {
	term   uint64 // in which it stamped
	stamp  int64
	config uint32 // the sum of its Config
}

// sumOf is a short hash of a Config.
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
