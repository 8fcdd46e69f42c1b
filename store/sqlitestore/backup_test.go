package sqlitestore

import (
	"context"
	"database/sql"
	"os"
	"path/filepath"
	"testing"

	"modernc.org/sqlite"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/driver"
)

// The documentation states what a backup of a file in use contains: a backup as sqlite3's .backup makes it has the
// acknowledged writes, and can take the place of the file. A plain copy of the file has not.
func TestABackupOfAFileInUse(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path, plain, backup := filepath.Join(dir, "payments.db"), filepath.Join(dir, "plain.db"), filepath.Join(dir, "copy.db")
	service, err := Open(t.Context(), path, nil)
	noErr(t, err)
	if got := pay(t, service); got != everonce.Executed {
		t.Fatalf("the first time: %v", got)
	}
	content, err := os.ReadFile(path)
	noErr(t, err)
	noErr(t, os.WriteFile(plain, content, 0o600))
	backUp(t, path, backup)
	if got := payAt(t, plain); got != everonce.Executed {
		t.Errorf("by a plain copy: %v; the manual warns of it for nothing", got)
	}

	noErr(t, service.Close())
	for _, end := range []string{"-wal", "-shm"} {
		noErr(t, os.RemoveAll(path+end))
	}
	content, err = os.ReadFile(backup)
	noErr(t, err)
	noErr(t, os.WriteFile(path, content, 0o600))
	if got := payAt(t, path); got != everonce.Replayed {
		t.Errorf("after a restore: %v", got)
	}
}

func pay(t *testing.T, store driver.Store) everonce.Outcome {
	t.Helper()
	r, err := everonce.NewReceiver(store, everonce.Refuse, nil)
	noErr(t, err)
	res, err := everonce.Do(t.Context(), r, everonce.Key{Scope: "backup", ID: "payment-7"},
		func(context.Context, *everonce.Attempt) (string, error) { return "paid", nil })
	noErr(t, err)
	return res.Outcome
}

// payAt is another process.
func payAt(t *testing.T, path string) everonce.Outcome {
	t.Helper()
	store, err := Open(t.Context(), path, nil)
	noErr(t, err)
	defer store.Close() //nolint:errcheck // it is over
	return pay(t, store)
}

// backUp copies a database as sqlite3's .backup does, through a separate connection.
func backUp(t *testing.T, from, to string) {
	t.Helper()
	db, err := sql.Open("sqlite", from)
	noErr(t, err)
	defer db.Close() //nolint:errcheck // it has only read
	conn, err := db.Conn(t.Context())
	noErr(t, err)
	defer conn.Close() //nolint:errcheck // see above
	noErr(t, conn.Raw(func(conn any) error {
		b, err := conn.(interface {
			NewBackup(string) (*sqlite.Backup, error)
		}).NewBackup(to)
		if err != nil {
			return err
		}
		if _, err := b.Step(-1); err != nil {
			return err
		}
		return b.Finish()
	}))
}
