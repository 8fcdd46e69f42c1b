package mysqlstore

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/internal/sqlstore"
)

// Store keeps records in MariaDB or MySQL, and commits them together with what the application writes through a
// *sql.Tx. It is a [driver.TxStore] of *sql.Tx, and safe for concurrent use.
type Store struct{ store }

// store has the methods that a receiver calls, by embedding.
type store struct {
	*sqlstore.Store[*sql.Tx]
	beside *beside
}

// New returns a store on the database of db, which was opened with the driver of github.com/go-sql-driver/mysql. The
// caller keeps db and closes it. New sends nothing: call [Store.Migrate] once before the first use.
func New(db *sql.DB, opts *Options) (*Store, error) {
	if db == nil {
		return nil, fmt.Errorf("%w: the database handle is nil", driver.ErrInvalidArgument)
	}
	d, err := newDatabase(opts)
	if err != nil {
		return nil, err
	}
	d.db = db
	return &Store{store{sqlstore.New[*sql.Tx](d), newBeside(d)}}, nil
}

// Migrate creates the tables, or updates them to this version. Several processes may run it at once, and it does
// nothing if the tables are up to date. It returns [everonce.ErrSchema] for tables of a newer version.
func (s *Store) Migrate(ctx context.Context) error { return s.Store.Migrate(ctx) }

// Schema returns what Migrate runs on an empty database, as text for your own migration tool. It changes only with a
// new version of the schema, which the changelog names.
func (s *Store) Schema() string { return s.Store.Schema() }

// Purge removes up to Limit expired results and records. A Limit of 0 is 1000. Package janitor calls it periodically.
func (s *Store) Purge(ctx context.Context, req driver.PurgeRequest) (driver.PurgeResult, error) {
	return s.Store.Purge(ctx, req)
}

// List returns records in the order of their IDs, without the data of their results.
func (s *Store) List(ctx context.Context, req driver.ListRequest) (driver.ListResult, error) {
	return s.Store.List(ctx, req)
}

// DeleteScope deletes up to Limit records of a tenant; their keys are new afterwards. A Limit of 0 is 1000. It keeps
// live claims and records that this version cannot read, and reports them: see [driver.ScopeDeleter]. It skips records
// that are locked at that moment, and reports More.
func (s *Store) DeleteScope(ctx context.Context, req driver.DeleteScopeRequest) (driver.DeleteScopeResult, error) {
	return s.Store.DeleteScope(ctx, req)
}

// Health counts records by state, and reports settings of the server that weaken durability. It reads all records.
func (s *Store) Health(ctx context.Context, req driver.HealthRequest) (driver.HealthResult, error) {
	return s.Store.Health(ctx, req)
}

// CheckWrite makes a write as durable as a claim's, and leaves no record: an error means that claims would fail.
func (s *Store) CheckWrite(ctx context.Context, req driver.CheckWriteRequest) (driver.CheckWriteResult, error) {
	return s.Store.CheckWrite(ctx, req)
}
