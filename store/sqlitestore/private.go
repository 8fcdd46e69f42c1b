package sqlitestore

import (
	"os"
	"sync"
)

// making is held while a file is made: to close a file takes away the locks that this process has on it, and in between no store may
// open it.
var making sync.Mutex

// makePrivate makes the file, where there is none, for its owner alone; SQLite gives what it puts beside a file the same rights. By itself
// it lets in whoever the umask does, which most often is everybody on the machine. What fails here is SQLite's to tell, with the reason.
func makePrivate(path string) {
	making.Lock()
	defer making.Unlock()
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600) //nolint:gosec // the file that the application named
	if err == nil {
		_ = f.Close() //nolint:errcheck // nothing was written
	}
}
