package sqlstore

import (
	"fmt"

	"github.com/everonce/everonce"
)

// maxNameLen leaves room for the suffixes that tables and indexes get in the 63 bytes of PostgreSQL.
const maxNameLen = 40

// ValidateName refuses what can not be a part of a table's name: anything but a-z, 0-9 and _, beginning with a
// letter or _, at most 40 of them. The error wraps [everonce.ErrInvalidArgument]; what names it.
func ValidateName(what, name string) error {
	if name == "" || len(name) > maxNameLen {
		return fmt.Errorf("%w: the %s has %d bytes; 1 to %d are possible", everonce.ErrInvalidArgument, what, len(name), maxNameLen)
	}
	for i := range len(name) {
		c := name[i]
		if c != '_' && (c < 'a' || c > 'z') && (i == 0 || c < '0' || c > '9') {
			return fmt.Errorf("%w: the %s %q may have a-z, 0-9 and _ only, and not begin with a digit", everonce.ErrInvalidArgument, what, name)
		}
	}
	return nil
}
