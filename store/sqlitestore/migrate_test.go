package sqlitestore_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/internal/testing/leaks"
	"github.com/everonce/everonce/store/sqlitestore"
)

// openInChild makes the test binary a process that opens the file that its value names, at the time that it names.
const openInChild = "EVERONCE_TEST_OPEN"

func TestMain(m *testing.M) {
	if path := os.Getenv(openInChild); path != "" {
		os.Exit(child(path))
	}
	leaks.Main(m)
}

func child(path string) int {
	for { // all at the same time
		if _, err := os.Stat(path + ".go"); err == nil {
			break
		}
		time.Sleep(time.Millisecond)
	}
	s, err := sqlitestore.Open(context.Background(), path, nil)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	if err := s.Close(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func TestProcessesMigrateAtTheSameTime(t *testing.T) {
	path := filepath.Join(t.TempDir(), "shared.db")
	var children []*exec.Cmd
	for range 4 {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), openInChild+"="+path)
		cmd.Stderr = os.Stderr
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		children = append(children, cmd)
	}
	if err := os.WriteFile(path+".go", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for i, cmd := range children {
		if err := cmd.Wait(); err != nil {
			t.Errorf("process %d: %v", i, err)
		}
	}
	s := open(t, path, &sqlitestore.Options{NoMigrate: true})
	if _, err := s.Get(t.Context(), driver.GetRequest{ID: order("1").RecordID()}); err != nil {
		t.Error(err)
	}
}

func TestMigrateAgainDoesNothing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "again.db")
	s := open(t, path, nil)
	before := s.Commits()
	for range 3 {
		if err := s.Migrate(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if got := s.Commits() - before; got != 0 {
		t.Errorf("it wrote %d times", got)
	}
}

func TestTwoPrefixesShareAFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "shared.db")
	a, b := open(t, path, &sqlitestore.Options{TablePrefix: "a_"}), open(t, path, &sqlitestore.Options{TablePrefix: "b_"})
	req := driver.ClaimRequest{ID: order("1").RecordID(), Scope: "orders", Name: "1", Nonce: driver.NewNonce(), Owner: "t", Lease: time.Minute}
	if res, err := a.Claim(t.Context(), req); err != nil || res.Decision != driver.DecideClaimed {
		t.Fatalf("%v, %v", res.Decision, err)
	}
	if got, err := b.Get(t.Context(), driver.GetRequest{ID: req.ID}); err != nil || got.Found {
		t.Errorf("the other prefix sees it: %v, %v", got.Found, err)
	}
}
