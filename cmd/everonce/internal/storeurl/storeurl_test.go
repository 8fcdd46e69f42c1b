package storeurl

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/driver"
)

// A created store exists, and tools can open it; Open of a missing one is an error.
func TestCreate(t *testing.T) {
	t.Parallel()
	url := "sqlite:" + filepath.Join(t.TempDir(), "proxy.db")
	if _, err := Open(t.Context(), url, Options{}); err == nil {
		t.Fatal("it exists before it was made")
	}
	for _, u := range []string{url, url, Memory} {
		s, err := create(t.Context(), u, Options{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Get(t.Context(), driver.GetRequest{ID: everonce.Key{Scope: "s", ID: "i"}.RecordID()}); err != nil {
			t.Errorf("%s: %v", u, err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
	s, err := Open(t.Context(), url, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	for url, want := range map[string]error{"mysql://localhost": ErrURL, "mysql://u:p@127.0.0.1:1/db": everonce.ErrStore, "oracle://localhost": ErrURL, "sqlite:": ErrURL, "memory:x": ErrURL, "postgres://127.0.0.1:port/": ErrURL, "postgres://u:p@127.0.0.1:1/db": everonce.ErrStore} {
		if _, err := create(t.Context(), url, Options{}); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", url, err, want)
		}
	}
}

// A file without a write-ahead log is not a store, whatever its tables are: opening it would change the journal mode of
// somebody else's file.
func TestAFileWithoutAWriteAheadLogIsUnchanged(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "other.db")
	s, err := create(t.Context(), sqliteScheme+file, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	before, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, at := range []int{writeVersion, readVersion} {
		before[at] = 1
	}
	if err := os.WriteFile(file, before, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(t.Context(), sqliteScheme+file, Options{}); !errors.Is(err, everonce.ErrSchema) {
		t.Errorf("%v, want ErrSchema", err)
	}
	if after, err := os.ReadFile(file); err != nil || !bytes.Equal(after, before) {
		t.Errorf("the file is another now (%v)", err)
	}
}

// create opens a store as a service does.
func create(ctx context.Context, url string, opts Options) (Store, error) {
	open, err := Prepare(url, opts)
	if err != nil {
		return nil, err
	}
	return open(ctx)
}

// A URL that opens no store is rejected before anything is opened: no server is contacted, and no file is made.
func TestPrepareRefuses(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, c := range []struct {
		url  string
		opts Options
		want error
	}{
		{"mysql://localhost", Options{}, ErrURL},
		{"sqlite:", Options{}, ErrURL},
		{"sqlite://x.db", Options{}, ErrURL},
		{"memory:x", Options{}, ErrURL},
		{"postgres://127.0.0.1:port/", Options{}, ErrURL},
		{"redis://127.0.0.1:port", Options{}, ErrURL},
		{"mongodb://127.0.0.1", Options{}, ErrURL},
		{"sqlite:x.db", Options{Schema: "public"}, everonce.ErrInvalidArgument},
		{"sqlite:x.db", Options{TablePrefix: "sqlite_"}, everonce.ErrInvalidArgument},
		{"sqlite::memory:", Options{}, everonce.ErrInvalidArgument},
		{"postgres://127.0.0.1:1/db", Options{Schema: "pg_temp"}, everonce.ErrInvalidArgument},
		{"postgres://127.0.0.1:1/db", Options{TablePrefix: "A"}, everonce.ErrInvalidArgument},
		{"redis://127.0.0.1:1", Options{Schema: "public"}, everonce.ErrInvalidArgument},
		{"redis://127.0.0.1:1", Options{TablePrefix: "{x}"}, everonce.ErrInvalidArgument},
		{"mongodb://127.0.0.1:1/db", Options{Schema: "public"}, everonce.ErrInvalidArgument},
		{"mongodb://127.0.0.1:1/db", Options{TablePrefix: "a.b"}, everonce.ErrInvalidArgument},
		{Memory, Options{Schema: "public"}, everonce.ErrInvalidArgument},
		{Memory, Options{TablePrefix: "a_"}, everonce.ErrInvalidArgument},
	} {
		if _, err := Prepare(c.url, c.opts); !errors.Is(err, c.want) {
			t.Errorf("%s with %+v: %v, want %v", c.url, c.opts, err, c.want)
		}
	}
	if files, err := os.ReadDir("."); err != nil || len(files) != 0 {
		t.Errorf("there are %d files, %v", len(files), err)
	}
}
