package transition

import (
	"github.com/everonce/everonce/driver"
)

// Count adds a record to the counts of h at the time h.Now, unless the record is gone. A record of a newer Format
// counts as unreadable.
func Count(h *driver.HealthResult, rec *driver.Record) {
	if rec.GoneAt(h.Now) {
		return
	}
	if rec.Format > driver.FormatVersion {
		h.Unreadable++
		return
	}
	switch rec.StateAt(h.Now) {
	case driver.StateClaimed:
		h.Claimed++
	case driver.StateReleased:
		h.Released++
	case driver.StateCompleted, driver.StateTombstone:
		h.Completed++
	case driver.StateAbandoned:
		h.Abandoned++
		if h.OldestAbandoned.IsZero() || rec.UpdatedAt.Before(h.OldestAbandoned) {
			h.OldestAbandoned = rec.UpdatedAt
		}
	}
}
