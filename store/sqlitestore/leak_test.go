package sqlitestore

import (
	"path/filepath"
	"runtime"
	"testing"
	"time"
	"weak"
)

// A store that is closed is forgotten: the driver keeps the hooks of a connection until they are taken off it.
func TestAClosedStoreIsForgotten(t *testing.T) {
	opened := func() weak.Pointer[database] {
		s, err := Open(t.Context(), filepath.Join(t.TempDir(), "records.db"), nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.DB().PingContext(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		return weak.Make(s.db)
	}()
	// The goroutines of database/sql and of the driver end soon after Close, and not in it.
	for begun := time.Now(); time.Since(begun) < 10*time.Second; time.Sleep(time.Millisecond) {
		if runtime.GC(); opened.Value() == nil {
			return
		}
	}
	t.Error("the closed store is still held")
}
