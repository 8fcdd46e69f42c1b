package sqlitestore

import (
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/everonce/everonce/driver"
)

// A transaction of the application that never ends does not keep the store from closing. Writes that waited for it are
// not made, and Close and the callers of those writes get an error that says so.
func TestCloseDoesNotWaitForATransactionForEver(t *testing.T) {
	path := filepath.Join(t.TempDir(), "close.db")
	s, err := Open(t.Context(), path, &Options{BusyTimeout: 20 * time.Millisecond})
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
		case <-time.After(3 * time.Minute):
			t.Fatalf("%s waits for ever", what)
		}
	}
	if err := tx.Rollback(); err != nil {
		t.Error(err)
	}
	again, err := Open(t.Context(), path, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	if res, err := again.Get(t.Context(), driver.GetRequest{ID: claimOf("a").ID}); err != nil || res.Found {
		t.Errorf("the write that was refused: %v, %v", res.Found, err)
	}
	if err := s.Close(); !errors.Is(err, errWriterBusy) {
		t.Errorf("closed again: %v, want what it said before", err)
	}
}

// A store that several goroutines close at once, while it is written to, is closed once, for all of them. Each write is
// made, or refused as the store's failure, and acknowledged writes are stored.
func TestCloseDuringWork(t *testing.T) {
	for range 5 {
		path := filepath.Join(t.TempDir(), "close.db")
		s, err := Open(t.Context(), path, nil)
		if err != nil {
			t.Fatal(err)
		}
		const writers, closers = 8, 3
		var work sync.WaitGroup
		made := make([][]driver.RecordID, writers)
		begun := make(chan struct{}, writers)
		for w := range writers {
			work.Go(func() {
				for i := 0; ; i++ {
					req := claimOf(fmt.Sprint(w, ".", i))
					res, err := s.Claim(t.Context(), req)
					if err != nil {
						if !errors.Is(err, driver.ErrStore) {
							t.Errorf("Claim: %v", err)
						}
						return
					}
					if res.Decision != driver.DecideClaimed {
						t.Errorf("Claim: %v", res.Decision)
					}
					if made[w] = append(made[w], req.ID); i == 0 {
						begun <- struct{}{}
					}
				}
			})
		}
		for range writers {
			<-begun
		}
		for range closers {
			work.Go(func() {
				if err := s.Close(); err != nil {
					t.Errorf("Close: %v", err)
				}
			})
		}
		work.Wait()
		again, err := Open(t.Context(), path, nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, ids := range made {
			for _, id := range ids {
				if res, err := again.Get(t.Context(), driver.GetRequest{ID: id}); err != nil || !res.Found {
					t.Errorf("an acknowledged claim: %v, %v", res.Found, err)
				}
			}
		}
		if err := again.Close(); err != nil {
			t.Error(err)
		}
	}
}
