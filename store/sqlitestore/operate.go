package sqlitestore

import (
	"context"

	"github.com/everonce/everonce/driver"
)

// Migrate creates the tables, or updates them to this version. Several processes may run it at once, and it does
// nothing if the tables are up to date. It returns [everonce.ErrSchema] for tables of a newer version.
func (s *Store) Migrate(ctx context.Context) error { return s.engine.Migrate(ctx) }

// Schema returns what Migrate runs on an empty database, as text for your own migration tool. It changes only with a
// new version of the schema, which the changelog names.
func (s *Store) Schema() string { return s.engine.Schema() }

// Purge removes up to Limit expired results and records. A Limit of 0 is 1000. Package janitor calls it periodically.
func (s *Store) Purge(ctx context.Context, req driver.PurgeRequest) (driver.PurgeResult, error) {
	return s.engine.Purge(ctx, req)
}

// List returns records in the order of their IDs, without the data of their results.
func (s *Store) List(ctx context.Context, req driver.ListRequest) (driver.ListResult, error) {
	return s.engine.List(ctx, req)
}

// DeleteScope deletes up to Limit records of a tenant; their keys are new afterwards. A Limit of 0 is 1000. It keeps
// live claims and records that this version cannot read, and reports them: see [driver.ScopeDeleter].
func (s *Store) DeleteScope(ctx context.Context, req driver.DeleteScopeRequest) (driver.DeleteScopeResult, error) {
	return s.engine.DeleteScope(ctx, req)
}

// Health counts records by state, and reports settings of the database that weaken durability. It reads all records.
func (s *Store) Health(ctx context.Context, req driver.HealthRequest) (driver.HealthResult, error) {
	return s.engine.Health(ctx, req)
}

// CheckWrite makes a write as durable as a claim's, and leaves no record: an error means that claims would fail.
func (s *Store) CheckWrite(ctx context.Context, req driver.CheckWriteRequest) (driver.CheckWriteResult, error) {
	return s.engine.CheckWrite(ctx, req)
}
