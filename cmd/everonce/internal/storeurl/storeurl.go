// Package storeurl opens the store that a URL names, for tools that only look and settle: it creates
// nothing and migrates nothing. A URL's password is in none of its errors.
package storeurl

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/everonce/everonce"
)

// ErrURL: the URL names no store.
var ErrURL = errors.New("not the URL of a store")

// Options say where in the database the tables are. The zero value of each field is its default.
type Options struct {
	// TablePrefix begins the names of the tables. Default "everonce_". Of MongoDB it is the collection's name. Default "everonce". Of Redis
	// it begins the names of the keys. Default "everonce:".
	TablePrefix string
	// Schema is the PostgreSQL schema of the tables. Default: the first of the search_path.
	Schema string
}

// Store is an open store.
type Store interface {
	everonce.Store
	everonce.Lister
	// Close closes it.
	Close() error
}

const (
	sqliteScheme     = "sqlite:"
	postgresScheme   = "postgres://"
	postgresqlScheme = "postgresql://"
	redisScheme      = "redis://"
	redissScheme     = "rediss://"
	mongodbScheme    = "mongodb://"
	mongodbSRVScheme = "mongodb+srv://"
)

// Open opens the store at url: "sqlite:FILE", a PostgreSQL URL, a Redis URL, or a MongoDB URL that names a database. Errors: [ErrURL],
// [everonce.ErrInvalidArgument]; [everonce.ErrStore] where it cannot be reached.
func Open(ctx context.Context, url string, opts Options) (Store, error) {
	switch {
	case strings.HasPrefix(url, sqliteScheme):
		return openSQLite(strings.TrimPrefix(url, sqliteScheme), opts)
	case strings.HasPrefix(url, postgresScheme), strings.HasPrefix(url, postgresqlScheme):
		return openPostgres(ctx, url, opts)
	case strings.HasPrefix(url, redisScheme), strings.HasPrefix(url, redissScheme):
		return connectRedis(ctx, url, opts, false)
	case strings.HasPrefix(url, mongodbScheme), strings.HasPrefix(url, mongodbSRVScheme):
		return connectMongoDB(ctx, url, opts, false)
	}
	return nil, fmt.Errorf("%w: it must begin with %s, %s, %s or %s", ErrURL, sqliteScheme, postgresScheme, redisScheme, mongodbScheme)
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
	if i := strings.LastIndexByte(rest, '@'); i >= 0 {
		rest = rest[i+1:]
	}
	rest, _, _ = strings.Cut(rest, "?")
	return scheme + "://" + rest
}
