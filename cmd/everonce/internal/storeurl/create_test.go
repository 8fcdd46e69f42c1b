package storeurl

import (
	"errors"
	"path/filepath"
	"testing"

	"github.com/everonce/everonce"
)

// A store that is created is there, and opens for tools; what creates nothing says so.
func TestCreate(t *testing.T) {
	t.Parallel()
	url := "sqlite:" + filepath.Join(t.TempDir(), "proxy.db")
	if _, err := Open(t.Context(), url, Options{}); err == nil {
		t.Fatal("it is there before it was made")
	}
	for _, u := range []string{url, url, Memory} {
		s, err := Create(t.Context(), u, Options{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Get(t.Context(), everonce.GetRequest{ID: everonce.Key{Scope: "s", ID: "i"}.RecordID()}); err != nil {
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
	for url, want := range map[string]error{"mysql://localhost": ErrURL, "sqlite:": ErrURL, "memory:x": ErrURL, "postgres://127.0.0.1:port/": ErrURL, "postgres://u:p@127.0.0.1:1/db": everonce.ErrStore} {
		if _, err := Create(t.Context(), url, Options{}); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", url, err, want)
		}
	}
	if _, err := Create(t.Context(), "sqlite:x.db", Options{Schema: "public"}); !errors.Is(err, everonce.ErrInvalidArgument) {
		t.Errorf("a schema of SQLite's: %v", err)
	}
}
