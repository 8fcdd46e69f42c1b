//go:build unix

package sqlitestore_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/everonce/everonce/store/sqlitestore"
)

// The records are for the service's user: a new file, and the files that SQLite puts beside it, are private to that
// user, whatever the umask allows. The mode of an existing file is its owner's choice, and is unchanged.
func TestNewFilesAreForTheirOwner(t *testing.T) {
	t.Parallel()
	for name, mode := range map[string]fs.FileMode{"new.db": 0o600, "made by hand.db": 0o660} {
		path := filepath.Join(t.TempDir(), name)
		if mode != 0o600 {
			if err := os.WriteFile(path, nil, mode); err != nil {
				t.Fatal(err)
			}
			if err := os.Chmod(path, mode); err != nil { // past the umask
				t.Fatal(err)
			}
		}
		store, err := sqlitestore.Open(t.Context(), path, nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range []string{path, path + "-wal", path + "-shm"} {
			if info, err := os.Stat(file); err != nil || info.Mode().Perm() != mode {
				t.Errorf("%s: %v, %v; want %v", filepath.Base(file), info.Mode(), err, mode)
			}
		}
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	}
}
