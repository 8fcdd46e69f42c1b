package sqlitestore

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/driver"
)

// A store whose file was removed, or replaced, while it is open writes nothing any more: the writes would be lost, and
// a process that opens the file anew would do all of it again. A refused write did not happen.
func TestAFileThatIsNotThereAnyMore(t *testing.T) {
	for what, away := range map[string]func(t *testing.T, path string){
		"removed": func(t *testing.T, path string) { noErr(t, os.Remove(path)) },
		"replaced": func(t *testing.T, path string) {
			other, err := Open(t.Context(), path+".other", nil)
			noErr(t, err)
			noErr(t, other.Close())
			noErr(t, os.Rename(path+".other", path))
		},
	} {
		t.Run(what, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "moved.db")
			s, err := Open(t.Context(), path, nil)
			noErr(t, err)
			defer s.Close() //nolint:errcheck // cleanup
			_, err = s.DB().Exec("CREATE TABLE account (balance INTEGER NOT NULL)")
			noErr(t, err)
			guarded, err := everonce.NewReceiver(s, everonce.Refuse, nil)
			noErr(t, err)
			transactional, err := everonce.NewTxReceiver(s, nil)
			noErr(t, err)
			runs := 0
			work := func(context.Context, *everonce.Attempt) (int, error) { runs++; return 1, nil }
			key := func(id string) everonce.Key { return everonce.Key{Scope: "tenant", ID: id} }
			_, err = everonce.Do(t.Context(), guarded, key("before"), work)
			noErr(t, err)
			open, err := s.Claim(t.Context(), claimOf("open"))
			noErr(t, err)

			away(t, path)
			_, doErr := everonce.Do(t.Context(), guarded, key("after"), work)
			_, txErr := everonce.Transact(t.Context(), transactional, key("tx"), func(ctx context.Context, tx *sql.Tx) (int, error) {
				_, err := tx.ExecContext(ctx, "INSERT INTO account VALUES (1)")
				return 1, err
			})
			_, optimisticErr := everonce.Transact(t.Context(), transactional, key("tx"), func(ctx context.Context, tx *sql.Tx) (int, error) {
				_, err := tx.ExecContext(ctx, "INSERT INTO account VALUES (1)")
				return 1, err
			}, everonce.Optimistic())
			_, completeErr := s.Complete(t.Context(), driver.CompleteRequest{ID: open.Record.ID, Token: open.Record.Token, Nonce: open.Record.Nonce, Result: driver.SavedResult{Kind: driver.ResultValue}})
			for call, err := range map[string]error{"Do": doErr, "Transact": txErr, "Transact, optimistic": optimisticErr, "Complete": completeErr} {
				if !errors.Is(err, driver.ErrStore) || !errors.Is(err, errMoved) || !strings.Contains(err.Error(), "the database file was removed or replaced while it was open") {
					t.Errorf("%s: %v, want %v", call, err, errMoved)
				}
			}
			if runs != 1 {
				t.Errorf("the work ran %d times", runs)
			}
			if _, err := os.Stat(path); what == "removed" && err == nil {
				t.Error("there is a file again, which the test has not made")
			}
		})
	}
}

func noErr(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
