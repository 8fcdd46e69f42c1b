package sqlstore

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/everonce/everonce/driver"
)

// The names in the table of settings.
const (
	metaSchema   = "schema"
	metaIdentity = "identity"
)

// Migrate creates the tables, or updates them to this version. Several processes may run it at once, and it does
// nothing if the tables are up to date. It returns [driver.ErrSchema] for tables of a newer version.
func (s *Store[Tx]) Migrate(ctx context.Context) error {
	migrations := s.driver.Migrations()
	if version, err := s.version(ctx); err == nil && version == len(migrations) {
		s.checked.Store(true)
		return nil
	}
	err := s.driver.Exclusive(ctx, func(ctx context.Context, c Conn) error {
		if err := c.Send(ctx, &Call{Statement: s.text.CreateMeta}); err != nil {
			return err
		}
		version, err := schemaVersion(ctx, c, s.text.GetMeta)
		if err != nil {
			return err
		}
		if version > len(migrations) {
			return s.newerSchema(version)
		}
		for _, step := range migrations[version:] {
			for _, text := range step {
				if err := c.Send(ctx, &Call{Statement: &Statement{Name: "migrate", Text: text}}); err != nil {
					return err
				}
			}
		}
		return c.Send(ctx, &Call{Statement: s.text.SetMeta, Args: []any{metaSchema, strconv.Itoa(len(migrations))}})
	})
	if err == nil {
		s.checked.Store(true)
	}
	if errors.Is(err, driver.ErrSchema) {
		return err
	}
	return s.failed("migrate", err)
}

// Schema returns what Migrate runs on an empty database, as text for your own migration tool. It changes only with a
// new version of the schema, which the changelog names.
func (s *Store[Tx]) Schema() string { return SchemaText(s.text, s.driver.Migrations()) }

// SchemaText is [Store.Schema] for drivers, without a store.
func SchemaText(text *Statements, migrations [][]string) string {
	var b strings.Builder
	b.WriteString(text.CreateMeta.Text + ";\n")
	for _, step := range migrations {
		for _, text := range step {
			b.WriteString(text + ";\n")
		}
	}
	meta := strings.TrimPrefix(text.CreateMeta.Text, "CREATE TABLE IF NOT EXISTS ")
	meta, _, _ = strings.Cut(meta, " (")
	fmt.Fprintf(&b, "INSERT INTO %s (name, value) VALUES ('%s', '%d');\n", meta, metaSchema, len(migrations))
	return b.String()
}

// ready checks the schema's version, once.
func (s *Store[Tx]) ready(ctx context.Context) error {
	if s.checked.Load() {
		return nil
	}
	version, err := s.version(ctx)
	if err != nil {
		return s.failed("schema version", err)
	}
	switch want := len(s.driver.Migrations()); {
	case version > want:
		return s.newerSchema(version)
	case version < want:
		return fmt.Errorf("%w: %w: the tables are of version %d, this package needs %d; %s",
			driver.ErrStore, driver.ErrSchema, version, want, s.traits.MigrateHint)
	}
	s.checked.Store(true)
	return nil
}

func (s *Store[Tx]) newerSchema(version int) error {
	return fmt.Errorf("%w: %w: the tables are of version %d, this package knows %d: upgrade this process",
		driver.ErrStore, driver.ErrSchema, version, len(s.driver.Migrations()))
}

func (s *Store[Tx]) version(ctx context.Context) (int, error) {
	return schemaVersion(ctx, reader[Tx]{s.driver}, s.text.GetMeta)
}

// schemaVersion is 0 where none is written.
func schemaVersion(ctx context.Context, c Conn, get *Statement) (int, error) {
	value, err := getMeta(ctx, c, get, metaSchema)
	if err != nil || value == "" {
		return 0, err
	}
	n, err := strconv.Atoi(value)
	if err != nil || n < 1 {
		return 0, fmt.Errorf("%w: %w: the version is not a number", driver.ErrStore, driver.ErrSchema)
	}
	return n, nil
}

func getMeta(ctx context.Context, c Conn, get *Statement, name string) (value string, err error) {
	err = c.Send(ctx, &Call{Statement: get, Args: []any{name}, Each: func(r Row) error { return r.Scan(&value) }})
	return value, err
}

// ReadIdentity returns the identity that the store is bound to: see [driver.IdentityReader].
func (s *Store[Tx]) ReadIdentity(ctx context.Context, _ driver.ReadIdentityRequest) (res driver.ReadIdentityResult, err error) {
	if err := s.ready(ctx); err != nil {
		return res, err
	}
	kept, err := getMeta(ctx, reader[Tx]{s.driver}, s.text.GetMeta, metaIdentity)
	if err != nil || kept == "" {
		return res, s.failed("identity", err)
	}
	raw, err := hex.DecodeString(kept)
	if err != nil || len(raw) != len(res.Check) {
		return res, s.failed("identity", fmt.Errorf("%w: the identity", driver.ErrCorruptRecord))
	}
	return driver.ReadIdentityResult{Bound: true, Check: [32]byte(raw)}, nil
}

// KeepIdentity binds the store to one identity secret: see [driver.IdentityKeeper].
func (s *Store[Tx]) KeepIdentity(ctx context.Context, req driver.KeepIdentityRequest) (res driver.KeepIdentityResult, err error) {
	if err := s.ready(ctx); err != nil {
		return res, err
	}
	mine := hex.EncodeToString(req.Check[:])
	kept, err := getMeta(ctx, reader[Tx]{s.driver}, s.text.GetMeta, metaIdentity)
	if err == nil && kept == "" {
		err = s.driver.Write(ctx, func(ctx context.Context, c Conn) (err error) {
			return c.Send(ctx, &Call{Statement: s.text.PutMeta, Args: []any{metaIdentity, mine}})
		})
		if err == nil {
			kept, err = getMeta(ctx, reader[Tx]{s.driver}, s.text.GetMeta, metaIdentity)
		}
	}
	switch {
	case err != nil:
		return res, s.failed("identity", err)
	case kept != mine:
		return res, fmt.Errorf("%w: %w", driver.ErrStore, driver.ErrIdentity)
	}
	return res, nil
}
