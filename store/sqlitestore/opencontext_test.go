package sqlitestore

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/everonce/everonce/driver"
)

// Open does not wait for another process longer than its context, and what it began is closed.
func TestOpenEndsWithItsContext(t *testing.T) {
	for name, hold := range map[string]string{"the file": "BEGIN EXCLUSIVE", "the writer": "PRAGMA journal_mode(WAL); BEGIN IMMEDIATE"} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "test.db")
			other, err := sql.Open("sqlite", path)
			if err != nil {
				t.Fatal(err)
			}
			defer other.Close() //nolint:errcheck // a test's
			conn, err := other.Conn(t.Context())
			if err == nil {
				_, err = conn.ExecContext(t.Context(), "CREATE TABLE t (x); "+hold)
			}
			if err != nil {
				t.Fatal(err)
			}
			why := errors.New("the service ends")
			ctx, cancel := context.WithCancelCause(t.Context())
			time.AfterFunc(50*time.Millisecond, func() { cancel(why) })
			opts := &Options{BusyTimeout: 20 * time.Second}
			began := time.Now()
			if _, err := Open(ctx, path, opts); !errors.Is(err, why) || !errors.Is(err, driver.ErrStore) {
				t.Errorf("Open: %v, want the cause of the context", err)
			}
			if took := time.Since(began); took > opts.BusyTimeout/2 {
				t.Errorf("Open took %v", took)
			}
			if _, err := conn.ExecContext(t.Context(), "ROLLBACK"); err != nil {
				t.Fatal(err)
			}
			if err := conn.Close(); err != nil {
				t.Fatal(err)
			}
			if err := other.Close(); err != nil {
				t.Fatal(err)
			}
			for !forgotten(t, path) {
				if time.Since(began) > time.Minute {
					t.Fatal("the file is still open")
				}
				time.Sleep(10 * time.Millisecond)
			}
		})
	}
}

// forgotten reports whether this process has the file open no more, nor a goroutine of this package.
func forgotten(t *testing.T, path string) bool {
	t.Helper()
	stacks := make([]byte, 1<<20)
	if strings.Contains(string(stacks[:runtime.Stack(stacks, true)]), "sqlitestore.Open.func") {
		return false
	}
	all, _ := os.ReadDir("/proc/self/fd") //nolint:errcheck // none where there is no such folder
	for _, fd := range all {
		if file, err := os.Readlink("/proc/self/fd/" + fd.Name()); err == nil && file == path {
			return false
		}
	}
	return true
}

// A context that is over leaves no file.
func TestOpenWithAContextThatIsOver(t *testing.T) {
	path := filepath.Join(t.TempDir(), "test.db")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Open(ctx, path, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("Open: %v", err)
	}
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("there is a file: %v", err)
	}
}
