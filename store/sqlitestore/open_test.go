package sqlitestore_test

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/store/sqlitestore"
)

// open opens a store that is closed with the test.
func open(t testing.TB, path string, opts *sqlitestore.Options) *sqlitestore.Store {
	t.Helper()
	s, err := sqlitestore.Open(t.Context(), path, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// SQLite says of a missing folder only that it is unable to open a file.
func TestAFolderThatIsNotThere(t *testing.T) {
	t.Parallel()
	folder := filepath.Join(t.TempDir(), "data")
	if s, err := sqlitestore.Open(t.Context(), filepath.Join(folder, "x.db"), nil); !errors.Is(err, driver.ErrStore) || !strings.Contains(err.Error(), "there is no folder "+folder) {
		t.Errorf("%v, %v; want ErrStore, and the folder", s, err)
	}
}
