// Package storeurl opens the store that a URL names: for tools that only look and settle, where it creates nothing and
// migrates nothing, and for a service that writes. A URL's password is in none of its errors.
package storeurl

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/driver"
)

// ErrURL: the URL names no store.
var ErrURL = errors.New("not the URL of a store")

// Options say where in the database the tables are. The zero value of each field is its default.
type Options struct {
	// TablePrefix begins the names of the tables. Default "everonce_". Of MongoDB it is the collection's name. Default
	// "everonce". Of Redis it begins the names of the keys. Default "everonce:". Of DynamoDB it must be empty: the URL
	// names the table.
	TablePrefix string
	// Schema is the PostgreSQL schema of the tables, or the database of MariaDB or MySQL. Default: the first of the
	// search_path, or the URL's.
	Schema string
	// Works says that more than one thing is done at a time: a PostgreSQL store then has as many connections as its URL
	// says.
	Works bool
	// Log, if set, gets a warning about a store that opens though something is wrong with it.
	Log *slog.Logger
}

// Store is an open store.
type Store interface {
	everonce.Store
	driver.Lister
	// Close closes it.
	Close() error
}

// Memory is the URL of a store in the memory of the process.
const Memory = "memory:"

const sqliteScheme = "sqlite:"

// kind is a kind of store.
type kind struct {
	name    string
	begins  []string                                                    // the prefixes of its URLs; errors name the first
	schemas bool                                                        // it has some
	scans   bool                                                        // see [Scans]
	forgets bool                                                        // its records end with the process, so a tool cannot see them
	read    func(url string, opts Options, create bool) (Opener, error) // the errors, and the Opener's, may tell a password
}

var kinds = []kind{
	{name: "SQLite", begins: []string{sqliteScheme}, read: readSQLite},
	{name: "PostgreSQL", begins: []string{"postgres://", "postgresql://"}, schemas: true, read: readPostgres},
	{name: "MariaDB or MySQL", begins: []string{"mysql://", "mariadb://"}, schemas: true, read: readMySQL},
	{name: "Redis", begins: []string{"redis://", "rediss://"}, read: readRedis},
	{name: "MongoDB", begins: []string{"mongodb://", "mongodb+srv://"}, read: readMongoDB},
	{name: "DynamoDB", begins: []string{"dynamodb://"}, scans: true, read: readDynamoDB},
	{name: "memory", begins: []string{Memory}, forgets: true, read: readMemory},
}

// Opener opens a store whose URL and options have been read.
type Opener func(context.Context) (Store, error)

// Open opens the store at url: "sqlite:FILE", a PostgreSQL, MySQL or Redis URL, a MongoDB URL that names a database, or
// dynamodb://TABLE. Errors: [ErrURL],
// [everonce.ErrInvalidArgument]; [everonce.ErrStore] where it cannot be reached.
func Open(ctx context.Context, url string, opts Options) (Store, error) {
	open, err := read(url, opts, false)
	if err != nil {
		return nil, err
	}
	return open(ctx)
}

// Prepare reads the URL of a store for a service that writes to it: any URL of [Open], or [Memory]. It opens nothing
// before the Opener is called. The Opener creates a missing file or missing tables, and a PostgreSQL store has as many
// connections as its URL says (pool_max_conns). Errors are as in Open.
func Prepare(url string, opts Options) (Opener, error) { return read(url, opts, true) }

func read(url string, opts Options, create bool) (Opener, error) {
	k, err := kindOf(url, create)
	if err != nil {
		return nil, err
	}
	if opts.Schema != "" && !k.schemas {
		return nil, fmt.Errorf("%w: %s has no schemas", everonce.ErrInvalidArgument, k.name)
	}
	open, err := k.read(url, opts, create)
	if err != nil {
		return nil, hide(err, url)
	}
	return func(ctx context.Context) (Store, error) {
		s, err := open(ctx)
		if err != nil {
			return nil, hide(err, url) // s is a nil pointer, and no nil Store
		}
		return s, nil
	}, nil
}

func kindOf(url string, create bool) (*kind, error) {
	var told []string
	for i := range kinds {
		k := &kinds[i]
		named := slices.ContainsFunc(k.begins, func(begin string) bool { return strings.HasPrefix(url, begin) })
		switch {
		case named && k.forgets && !create:
			return nil, fmt.Errorf("%w: records in %s are seen by the process that has them, and by no other", ErrURL, k.name)
		case named:
			return k, nil
		case !k.forgets || create:
			told = append(told, k.begins[0])
		}
	}
	last := len(told) - 1
	return nil, fmt.Errorf("%w: it must begin with %s or %s", ErrURL, strings.Join(told[:last], ", "), told[last])
}

// Scans reports whether the store at url reads all of its records to count or to purge some, and is charged for that.
func Scans(url string) bool {
	k, err := kindOf(url, true)
	return err == nil && k.scans
}

// Name returns what logs call the store at url: without user, password and parameters.
func Name(url string) string {
	if strings.HasPrefix(url, sqliteScheme) {
		return url
	}
	scheme, rest, ok := strings.Cut(url, "://")
	if !ok {
		return "?"
	}
	at, query := strings.LastIndexByte(rest, '@'), strings.IndexByte(rest, '?')
	if query >= 0 && query < at { // the password may be in either part
		return scheme + "://" + redacted
	}
	rest, _, _ = strings.Cut(rest[at+1:], "?")
	return scheme + "://" + rest
}
