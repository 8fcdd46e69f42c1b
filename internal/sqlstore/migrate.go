package sqlstore

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"

	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/internal/sqldb"
)

// The names in the table of settings.
const (
	metaSchema   = "schema"
	metaIdentity = "identity"
)

// Migrate creates the tables, or updates them to this version. Several processes may run it at once, and it does
// nothing if the tables are up to date. It returns [driver.ErrSchema] for tables of a newer version.
func (s *Store[Tx]) Migrate(ctx context.Context) error {
	if err := s.settings(ctx); err != nil { // a database with wrong settings is not changed
		return err
	}
	if s.schema.Check(ctx, s.driver) != nil {
		switch err := s.schema.Migrate(ctx, s.driver); {
		case errors.Is(err, driver.ErrSchema):
			return err
		case err != nil:
			return s.wrapError("migrate", err)
		}
	}
	return s.ready(ctx)
}

// Schema returns what Migrate runs on an empty database, as text for your own migration tool. It changes only with a
// new version of the schema, which the changelog names.
func (s *Store[Tx]) Schema() string { return s.schema.Text() }

// SchemaText is [Store.Schema] for drivers, without a store.
func SchemaText(text *Statements, migrations [][]string) string {
	return (&sqldb.Schema{Name: metaSchema, Meta: text.Meta, Migrations: migrations}).Text()
}

// ready checks the schema's version and the settings, once.
func (s *Store[Tx]) ready(ctx context.Context) error {
	if s.checked.Load() {
		return nil
	}
	if err := s.schema.Check(ctx, s.driver); err != nil {
		if errors.Is(err, driver.ErrSchema) {
			return err
		}
		return s.wrapError("schema version", err)
	}
	if err := s.settings(ctx); err != nil {
		return err
	}
	s.checked.Store(true)
	return nil
}

// settings refuses a database that is set up so that it cannot keep the store's promises.
func (s *Store[Tx]) settings(ctx context.Context) error {
	if s.traits.Check == nil {
		return nil
	}
	return s.wrapError("settings", s.traits.Check(ctx))
}

// ReadIdentity returns the identity that the store is bound to: see [driver.IdentityReader].
func (s *Store[Tx]) ReadIdentity(ctx context.Context, _ driver.ReadIdentityRequest) (res driver.ReadIdentityResult, err error) {
	if err := s.ready(ctx); err != nil {
		return res, err
	}
	kept, err := s.text.Meta.Read(ctx, reader[Tx]{s.driver}, metaIdentity)
	if err != nil || kept == "" {
		return res, s.wrapError("identity", err)
	}
	raw, err := hex.DecodeString(kept)
	if err != nil || len(raw) != len(res.Check) {
		return res, s.wrapError("identity", fmt.Errorf("%w: the identity", driver.ErrCorruptRecord))
	}
	return driver.ReadIdentityResult{Bound: true, Check: [32]byte(raw)}, nil
}

// KeepIdentity binds the store to one identity secret: see [driver.IdentityKeeper].
func (s *Store[Tx]) KeepIdentity(ctx context.Context, req driver.KeepIdentityRequest) (res driver.KeepIdentityResult, err error) {
	if err := s.ready(ctx); err != nil {
		return res, err
	}
	mine := hex.EncodeToString(req.Check[:])
	kept, err := s.text.Meta.Read(ctx, reader[Tx]{s.driver}, metaIdentity)
	if err == nil && kept == "" {
		err = s.driver.Write(ctx, func(ctx context.Context, c sqldb.Conn) (err error) {
			return c.Send(ctx, &sqldb.Call{Statement: s.text.Meta.Put, Args: []any{metaIdentity, mine}})
		})
		if err == nil {
			kept, err = s.text.Meta.Read(ctx, reader[Tx]{s.driver}, metaIdentity)
		}
	}
	switch {
	case err != nil:
		return res, s.wrapError("identity", err)
	case kept != mine:
		return res, fmt.Errorf("%w: %w", driver.ErrStore, driver.ErrIdentity)
	}
	return res, nil
}
