package pgxstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/internal/sqlstore"
)

// Store keeps records in PostgreSQL, and commits them together with what the application writes through a pgx.Tx. It is
// a [driver.TxStore] of pgx.Tx, and safe for concurrent use.
type Store struct{ store[pgx.Tx] }

// SQLStore is a [Store] for applications that write through a *sql.Tx.
type SQLStore struct{ store[*sql.Tx] }

// store holds the methods that both stores have: those that a receiver calls, by embedding, and those that applications
// call.
type store[Tx any] struct {
	*sqlstore.Store[Tx]
	endListener *endListener // nil without Options.Listen
}

func newStore[Tx any](d sqlstore.Driver[Tx], db *database, s session) store[Tx] {
	made := store[Tx]{Store: sqlstore.New(d)}
	if db.listen {
		made.endListener = &endListener{session: s, db: db, byID: make(map[driver.RecordID]*watch)}
	}
	return made
}

// New returns a store on the database of pool. The caller keeps the pool and closes it. New sends nothing: call
// [Store.Migrate] once before the first use.
func New(pool *pgxpool.Pool, opts *Options) (*Store, error) {
	d, err := newPgxDriver(pool, opts)
	if err != nil {
		return nil, err
	}
	return &Store{newStore[pgx.Tx](d, d.database, d.session)}, nil
}

// NewSQL returns a store on the database of db: one opened by pgx's stdlib, or by another driver whose errors wrap a
// *pgconn.PgError. The caller keeps db and closes it. The store takes more round trips than one returned by [New],
// because database/sql cannot pipeline. Both may be used on the same tables at once.
func NewSQL(db *sql.DB, opts *Options) (*SQLStore, error) {
	d, err := newSQLDriver(db, opts)
	if err != nil {
		return nil, err
	}
	switch {
	case d.listen && !d.asks:
		return nil, fmt.Errorf("%w: Options.Listen needs a database that pgx's stdlib has opened", driver.ErrInvalidArgument)
	case d.listen && db.Stats().MaxOpenConnections == 1:
		return nil, fmt.Errorf("%w: Options.Listen needs a separate connection, and db may open only one", driver.ErrInvalidArgument)
	}
	return &SQLStore{newStore[*sql.Tx](d, d.database, d.session)}, nil
}

// Migrate creates the tables, or updates them to this version. Several processes may run it at once, and it does
// nothing if the tables are up to date. It returns [everonce.ErrSchema] for tables of a newer version.
func (s *store[Tx]) Migrate(ctx context.Context) error { return s.Store.Migrate(ctx) }

// Schema returns what Migrate runs on an empty database, as text for your own migration tool. It changes only with a
// new version of the schema, which the changelog names.
func (s *store[Tx]) Schema() string { return s.Store.Schema() }

// Purge removes up to Limit expired results and records. A Limit of 0 is 1000. Package janitor calls it periodically.
func (s *store[Tx]) Purge(ctx context.Context, req driver.PurgeRequest) (driver.PurgeResult, error) {
	return s.Store.Purge(ctx, req)
}

// List returns records in the order of their IDs, without the data of their results.
func (s *store[Tx]) List(ctx context.Context, req driver.ListRequest) (driver.ListResult, error) {
	return s.Store.List(ctx, req)
}

// DeleteScope deletes up to Limit records of a tenant; their keys are new afterwards. A Limit of 0 is 1000. It keeps
// live claims and records that this version cannot read, and reports them: see [driver.ScopeDeleter]. It skips records
// that are locked at that moment, and reports More.
func (s *store[Tx]) DeleteScope(ctx context.Context, req driver.DeleteScopeRequest) (driver.DeleteScopeResult, error) {
	return s.Store.DeleteScope(ctx, req)
}

// Health counts records by state, and reports settings of the database that weaken durability. It reads all records.
func (s *store[Tx]) Health(ctx context.Context, req driver.HealthRequest) (driver.HealthResult, error) {
	return s.Store.Health(ctx, req)
}

// CheckWrite makes a write as durable as a claim's, and leaves no record: an error means that claims would fail.
func (s *store[Tx]) CheckWrite(ctx context.Context, req driver.CheckWriteRequest) (driver.CheckWriteResult, error) {
	return s.Store.CheckWrite(ctx, req)
}

// Watch starts a watch for the end of the attempt that is running: see [driver.ChangeWaiter]. It fails with
// [errors.ErrUnsupported] without [Options].Listen, and callers that wait ask again and again then.
func (s *store[Tx]) Watch(ctx context.Context, req driver.WatchRequest) (driver.WatchResult, error) {
	if s.endListener == nil {
		return driver.WatchResult{}, fmt.Errorf("pgxstore: Options.Listen is not set: %w", errors.ErrUnsupported)
	}
	return s.endListener.watch(ctx, req.ID)
}
