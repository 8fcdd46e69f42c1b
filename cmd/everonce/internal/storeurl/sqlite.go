package storeurl

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/store/sqlitestore"
)

func readSQLite(url string, opts Options, create bool) (Opener, error) {
	path := strings.TrimPrefix(url, sqliteScheme)
	switch {
	case path == "":
		return nil, fmt.Errorf("%w: sqlite: needs a file name", ErrURL)
	case strings.HasPrefix(path, "//") && !strings.HasPrefix(path, "///"): // a file in the root, and not the one in this folder that was meant
		return nil, fmt.Errorf("%w: sqlite: takes a plain path, without //: sqlite:FILE", ErrURL)
	}
	set := &sqlitestore.Options{NoMigrate: !create, TablePrefix: opts.TablePrefix}
	if err := set.Validate(path); err != nil {
		return nil, err
	}
	return func(ctx context.Context) (Store, error) {
		if !create {
			if err := checkSQLite(path); err != nil {
				return nil, err
			}
		}
		return sqlitestore.Open(ctx, path, set)
	}, nil
}

// The header of a SQLite file, as its format is documented: a magic string, and at bytes 18 and 19 the
// versions for writing and reading, which are 2 for a write-ahead log.
const (
	sqliteMagic  = "SQLite format 3\x00"
	writeVersion = 18
	readVersion  = 19
	walVersion   = 2
)

// checkSQLite makes sure that path may be a store, before SQLite creates a file there, or changes the
// journal mode of somebody else's.
func checkSQLite(path string) error {
	f, err := os.Open(path) //nolint:gosec // the file that the user named
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%w: there is no file %s", everonce.ErrStore, path)
	case err != nil:
		return fmt.Errorf("%w: %w", everonce.ErrStore, err)
	}
	defer f.Close() //nolint:errcheck // it was only read
	if info, err := f.Stat(); err == nil && info.IsDir() {
		return fmt.Errorf("%w: %s is a directory", everonce.ErrStore, path)
	}
	header := make([]byte, readVersion+1)
	if _, err := io.ReadFull(f, header); err != nil || !bytes.HasPrefix(header, []byte(sqliteMagic)) {
		return fmt.Errorf("%w: %s is not a SQLite database", everonce.ErrStore, path)
	}
	if header[writeVersion] < walVersion || header[readVersion] < walVersion { // of a later format Open names the cause
		return fmt.Errorf("%w: %w: %s has no records of everonce: it has no write-ahead log", everonce.ErrStore, everonce.ErrSchema, path)
	}
	return nil
}
