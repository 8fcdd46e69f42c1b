package transition

import "github.com/everonce/everonce"

// Count adds a record to what a store's Health counts at the time h.Now. One that is gone does not count.
func Count(h *everonce.Health, rec *everonce.Record) {
	if rec.GoneAt(h.Now) {
		return
	}
	switch rec.StateAt(h.Now) {
	case everonce.StateClaimed:
		h.Claimed++
	case everonce.StateReleased:
		h.Released++
	case everonce.StateCompleted, everonce.StateTombstone:
		h.Completed++
	case everonce.StateAbandoned:
		h.Abandoned++
		if h.OldestAbandoned.IsZero() || rec.UpdatedAt.Before(h.OldestAbandoned) {
			h.OldestAbandoned = rec.UpdatedAt
		}
	}
}
