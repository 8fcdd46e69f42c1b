package sqlitestore_test

import (
	"testing"

	"github.com/everonce/everonce/store/sqlitestore"
)

// open opens a store that is closed with the test.
func open(t testing.TB, path string, opts *sqlitestore.Options) *sqlitestore.Store {
	t.Helper()
	s, err := sqlitestore.Open(path, opts)
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
