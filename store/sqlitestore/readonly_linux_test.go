package sqlitestore_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/store/sqlitestore"
)

// inReadOnlyPlaces makes the test binary a process with private mounts, below the folder that its value names.
const inReadOnlyPlaces = "EVERONCE_TEST_READONLY"

// TestWhatTakesNoWritesIsNotOpened: neither a file that may only be read, though its folder takes writes, as after a
// copy by another user, nor one in such a folder. A service would start, and fail at each claim. A process that creates
// no tables may open it to read.
func TestWhatTakesNoWritesIsNotOpened(t *testing.T) {
	dir := os.Getenv(inReadOnlyPlaces)
	if dir == "" {
		withMounts(t, inReadOnlyPlaces+"="+t.TempDir())
		return
	}
	mount := func(source, target, kind string, flags uintptr) {
		t.Helper()
		if err := syscall.Mount(source, target, kind, flags, ""); err != nil {
			t.Fatalf("mount %s at %s: %v", source, target, err)
		}
	}
	mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE)
	file, folder := filepath.Join(dir, "file.db"), filepath.Join(dir, "folder")
	s, err := sqlitestore.Open(t.Context(), file, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	mount(file, file, "", syscall.MS_BIND)
	mount("", file, "", syscall.MS_BIND|syscall.MS_REMOUNT|syscall.MS_RDONLY)
	if err := os.Mkdir(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	mount("tmpfs", folder, "tmpfs", syscall.MS_RDONLY)
	for path, want := range map[string]string{
		file:                          "the file or its folder takes no writes",
		filepath.Join(folder, "x.db"): "no file can be made in its folder",
	} {
		if s, err := sqlitestore.Open(t.Context(), path, nil); !errors.Is(err, driver.ErrStore) || !strings.Contains(err.Error(), want) {
			t.Errorf("Open(%s): %v, %v; want ErrStore, and that %s", path, s, err, want)
		}
	}
	reader := open(t, file, &sqlitestore.Options{NoMigrate: true})
	if _, err := reader.List(t.Context(), driver.ListRequest{}); err != nil {
		t.Errorf("a listing of a file that may only be read: %v", err)
	}
}
