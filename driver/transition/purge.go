package transition

import (
	"time"

	"github.com/everonce/everonce/driver"
)

// Action is what a purge must do with a record.
type Action uint8

// The actions.
const (
	// Keep leaves the record alone.
	Keep Action = iota
	// DropResult removes the result and the steps of a tombstone: see [Drop].
	DropResult
	// Remove removes the record.
	Remove
)

// Purge returns what a purge must do with a record at the store's time. The write that does it must check this
// again: the key may have been claimed anew in between.
func Purge(rec *driver.Record, now time.Time) Action {
	switch {
	case rec.GoneAt(now):
		return Remove
	case rec.StateAt(now) == driver.StateTombstone && !dropped(rec) && rec.Format <= driver.FormatVersion:
		return DropResult
	}
	return Keep
}

// Drop returns the record of a tombstone: without steps, and with only the kind and summary of the result.
// UpdatedAt does not change.
func Drop(rec *driver.Record) *driver.Record {
	next := copyOf(rec)
	next.Result = driver.SavedResult{Kind: rec.Result.Kind, Summary: rec.Result.Summary}
	next.Steps = nil
	return next
}

// dropped reports whether a record has been through Drop. Every result with data names a codec.
func dropped(rec *driver.Record) bool {
	return rec.Result.Codec == "" && len(rec.Result.Data) == 0 && len(rec.Steps) == 0
}
