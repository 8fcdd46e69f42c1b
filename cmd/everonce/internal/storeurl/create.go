package storeurl

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/store/memstore"
	"github.com/everonce/everonce/store/sqlitestore"
)

// Memory is the URL of a store in the memory of the process.
const Memory = "memory:"

// Create opens the store at url for a service that writes to it: as [Open] does, and [Memory] too. A file or
// tables that are not there are created, and a PostgreSQL store has as many connections as its URL says
// (pool_max_conns). Errors are as in Open.
func Create(ctx context.Context, url string, opts Options) (Store, error) {
	switch {
	case url == Memory:
		return memory{memstore.New(nil)}, nil
	case strings.HasPrefix(url, sqliteScheme):
		return createSQLite(strings.TrimPrefix(url, sqliteScheme), opts)
	case strings.HasPrefix(url, postgresScheme), strings.HasPrefix(url, postgresqlScheme):
		return createPostgres(ctx, url, opts)
	case strings.HasPrefix(url, redisScheme), strings.HasPrefix(url, redissScheme):
		return connectRedis(ctx, url, opts, true)
	case strings.HasPrefix(url, mongodbScheme), strings.HasPrefix(url, mongodbSRVScheme):
		return connectMongoDB(ctx, url, opts, true)
	}
	return nil, fmt.Errorf("%w: it must begin with %s, %s, %s, %s or %s", ErrURL, sqliteScheme, postgresScheme, redisScheme, mongodbScheme, Memory)
}

// memory has nothing to close.
type memory struct{ *memstore.Store }

func (memory) Close() error { return nil }

func createSQLite(path string, opts Options) (Store, error) {
	switch {
	case opts.Schema != "":
		return nil, fmt.Errorf("%w: SQLite has no schemas", everonce.ErrInvalidArgument)
	case path == "":
		return nil, fmt.Errorf("%w: sqlite: needs a file name", ErrURL)
	}
	s, err := sqlitestore.Open(path, &sqlitestore.Options{TablePrefix: opts.TablePrefix})
	if err != nil {
		return nil, err
	}
	return s, nil
}

func createPostgres(ctx context.Context, text string, opts Options) (Store, error) {
	s, err := connectPostgres(ctx, text, opts, func(*pgxpool.Config) {})
	if err != nil {
		return nil, err
	}
	if err := s.Migrate(ctx); err != nil {
		s.pool.Close()
		var refused *pgconn.PgError
		if errors.As(err, &refused) && refused.Code == insufficientPrivilege {
			return nil, fmt.Errorf("%w; if the tables are there, this role lacks rights on them; if not, somebody who may has to create them, by the text of \"everonce schema\"", err)
		}
		return nil, err
	}
	return s, nil
}

const insufficientPrivilege = "42501"
