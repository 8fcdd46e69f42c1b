package transition

import (
	"time"

	"github.com/everonce/everonce/driver"
)

// Action is what a purge does with a record.
type Action uint8

// The actions.
const (
	// Keep leaves the record alone.
	Keep Action = iota
	// DropResult drops the result and the steps of a tombstone: see [Drop].
	DropResult
	// Remove removes the record.
	Remove
)

// Purge says what a purge does with a record at the store's time. The statement that then does it must repeat the
// question: the key may have been claimed anew in between.
func Purge(rec *driver.Record, now time.Time) Action {
	switch {
	case rec.GoneAt(now):
		return Remove
	case rec.StateAt(now) == driver.StateTombstone && !dropped(rec) && rec.Format <= driver.FormatVersion:
		return DropResult
	}
	return Keep
}

// Drop returns the record without what ends with its retention: only the kind and summary of the result are left, and
// no steps. It does not count as a write for Record.UpdatedAt.
func Drop(rec *driver.Record) *driver.Record {
	next := copyOf(rec)
	next.Result = driver.SavedResult{Kind: rec.Result.Kind, Summary: rec.Result.Summary}
	next.Steps = nil
	return next
}

// dropped is told by the codec, which every result that holds data names, and by the data itself.
func dropped(rec *driver.Record) bool {
	return rec.Result.Codec == "" && len(rec.Result.Data) == 0 && len(rec.Steps) == 0
}
