package sqlitestore

import (
	"errors"
	"path/filepath"
	"testing"
	"time"

	"github.com/everonce/everonce"
)

// A transaction of the application that never ends does not keep the store from closing. What waited for it is not
// written, and that is told: by Close, and to who waits for the write.
func TestCloseDoesNotWaitForATransactionForEver(t *testing.T) {
	path := filepath.Join(t.TempDir(), "close.db")
	s, err := Open(path, &Options{BusyTimeout: 20 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	tx, err := s.DB().BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback() //nolint:errcheck // it has written nothing
	claimed, closed := make(chan error, 1), make(chan error, 1)
	go func() {
		_, err := s.Claim(t.Context(), claimOf("a"))
		claimed <- err
	}()
	s.db.group.queued(1)
	go func() { closed <- s.Close() }()
	for what, told := range map[string]chan error{"Close": closed, "Claim": claimed} {
		select {
		case err := <-told:
			wants(t, what, err, errWriterBusy, "holds the only writer")
		case <-time.After(10 * time.Second):
			t.Fatalf("%s waits for ever", what)
		}
	}
	if err := tx.Rollback(); err != nil {
		t.Error(err)
	}
	again, err := Open(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	if res, err := again.Get(t.Context(), everonce.GetRequest{ID: claimOf("a").ID}); err != nil || res.Found {
		t.Errorf("the write that was refused: %v, %v", res.Found, err)
	}
	if err := s.Close(); !errors.Is(err, errWriterBusy) {
		t.Errorf("closed again: %v, want what it said before", err)
	}
}
