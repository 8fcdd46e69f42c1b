package sqldb

import (
	"fmt"

	"github.com/everonce/everonce/driver"
)

// Failed gives an error of the database its meaning: the named reason, and that it is the store's failure. hint says
// what to run if the tables are missing.
func Failed(db Database, what, hint string, err error) error {
	name := db.Dialect().Name
	reason := func(sentinel error, why string) error {
		return fmt.Errorf("%w: %w: %s: %s: %s: %w", driver.ErrStore, sentinel, name, what, why, err)
	}
	switch db.Classify(err).Class {
	case ClassMissingTable:
		return reason(driver.ErrSchema, "the tables are missing or of another version; "+hint)
	case ClassFull:
		return reason(driver.ErrStoreFull, "the database has no room")
	case ClassTooLarge:
		return reason(driver.ErrTooLarge, "the database refuses the size")
	case ClassReadOnly:
		return fmt.Errorf("%w: %s: %s: the database accepts no writes: %w", driver.ErrStore, name, what, err)
	case ClassDenied:
		return fmt.Errorf("%w: %s: %s: permission denied: %w", driver.ErrStore, name, what, err)
	}
	return fmt.Errorf("%w: %s: %s: %w", driver.ErrStore, name, what, err)
}
