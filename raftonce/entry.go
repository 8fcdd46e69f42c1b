package raftonce

import (
	"encoding/binary"
	"fmt"

	"github.com/everonce/everonce/session"
)

// An entry of the log, its numbers little endian:
//
//	version(8) stamp(64) command, as [session.Command.AppendTo] writes it
const (
	entryVersion = 1
	entryHead    = 9
)

func newEntry(stamp int64, c *session.Command) ([]byte, error) {
	b := make([]byte, 0, entryHead+128+len(c.Payload))
	b = binary.LittleEndian.AppendUint64(append(b, entryVersion), uint64(stamp)) //nolint:gosec // its bits
	return c.AppendTo(b)
}

func parseEntry(b []byte) (stamp int64, c session.Command, err error) {
	if len(b) < entryHead || b[0] != entryVersion {
		return 0, c, fmt.Errorf("%w: it has no stamp", ErrEntry)
	}
	stamp = int64(binary.LittleEndian.Uint64(b[1:])) //nolint:gosec // its bits
	if c, err = session.ParseCommand(b[entryHead:]); err != nil {
		return 0, c, fmt.Errorf("%w: %w", ErrEntry, err)
	}
	return stamp, c, nil
}
