package sqlitestore

import (
	"errors"
	"os"
)

// errMoved says that the path names no file any more, or another one. SQLite would continue with the open file.
var errMoved = errors.New("sqlitestore: the database file was removed or replaced while it was open, so writes would be lost (open the store anew)")

// checkFile makes sure, before a connection is opened and before a commit, that the file is the one which the store has
// opened.
func (d *database) checkFile() error {
	if d.file == nil { // it is being opened
		return nil
	}
	if now, err := os.Stat(d.path); err != nil || !os.SameFile(now, d.file) {
		return errMoved
	}
	return nil
}
