package sqlitestore

import (
	"os"
	"sync"
)

// making is held while a file is made: to close a file takes away the locks that this process has on it, and in between
// no store may open it.
var making sync.Mutex

// makePrivate creates a missing file with access for its owner alone; SQLite gives the files that it puts beside it the
// same rights. SQLite alone would create it by the umask, which usually lets every user of the machine read it. If this
// fails, SQLite fails too, and reports the reason.
func makePrivate(path string) {
	making.Lock()
	defer making.Unlock()
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600) //nolint:gosec // the file that the application named
	if err == nil {
		_ = f.Close() //nolint:errcheck // nothing was written
	}
}
