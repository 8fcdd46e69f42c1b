package sqlstore

import (
	"fmt"

	"github.com/everonce/everonce/driver"
)

// maxNameLen leaves room for the suffixes that tables and indexes get in the 63 bytes of PostgreSQL.
const maxNameLen = 40

// ValidateName returns an error if name cannot be a part of a table's name: at most 40 of a-z, 0-9 and _, not
// beginning with a digit. The error wraps [driver.ErrInvalidArgument]; what says whose name it is.
func ValidateName(what, name string) error {
	if name == "" || len(name) > maxNameLen {
		return fmt.Errorf("%w: the %s has %d bytes; 1 to %d are possible", driver.ErrInvalidArgument, what, len(name), maxNameLen)
	}
	for i := range len(name) {
		c := name[i]
		if c != '_' && (c < 'a' || c > 'z') && (i == 0 || c < '0' || c > '9') {
			return fmt.Errorf("%w: the %s %q may have a-z, 0-9 and _ only, and not begin with a digit", driver.ErrInvalidArgument, what, name)
		}
	}
	return nil
}
