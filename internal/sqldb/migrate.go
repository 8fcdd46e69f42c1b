package sqldb

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/everonce/everonce/driver"
)

// Meta are the statements of the table in which versions are kept.
type Meta struct {
	Create, Get, Put, Set *Statement
}

// NewMeta returns the statements for the table of settings.
func NewMeta(d *Dialect) Meta {
	if d.MySQL {
		const insert = "INSERT INTO {meta} (name, value) VALUES ({1t}, {2t}) ON DUPLICATE KEY UPDATE "
		return Meta{
			Create: d.Statement("create_meta", 0, "CREATE TABLE IF NOT EXISTS {meta} (name VARBINARY(64) NOT NULL PRIMARY KEY, value VARBINARY(255) NOT NULL) ENGINE = InnoDB", "meta"),
			Get:    d.Statement("get_meta", 1, "SELECT value FROM {meta} WHERE name = {1t}", "meta"),
			Put:    d.Statement("put_meta", 2, insert+"name = name", "meta"),
			Set:    d.Statement("set_meta", 2, insert+"value = VALUES(value)", "meta"),
		}
	}
	return Meta{
		Create: d.Statement("create_meta", 0, "CREATE TABLE IF NOT EXISTS {meta} (name TEXT NOT NULL PRIMARY KEY, value TEXT NOT NULL)", "meta"),
		Get:    d.Statement("get_meta", 1, "SELECT value FROM {meta} WHERE name = {1t}", "meta"),
		Put:    d.Statement("put_meta", 2, "INSERT INTO {meta} (name, value) VALUES ({1t}, {2t}) ON CONFLICT (name) DO NOTHING", "meta"),
		Set:    d.Statement("set_meta", 2, "INSERT INTO {meta} (name, value) VALUES ({1t}, {2t}) ON CONFLICT (name) DO UPDATE SET value = excluded.value", "meta"),
	}
}

// Schema is the tables of one package, by the name under which their version is kept. Entry i of Migrations brings
// them from version i to version i+1, as single statements that are run in one transaction.
type Schema struct {
	Name       string
	Meta       Meta
	Migrations [][]string
	// Hint completes the sentence "the tables are missing: ", and says what to run.
	Hint string
}

// Migrate creates the tables, or brings them to this version. Several processes may run it at once, and it does nothing
// if there is nothing to do. It refuses tables of a newer version with [driver.ErrSchema].
func (s *Schema) Migrate(ctx context.Context, db Database) error {
	return db.Exclusive(ctx, func(ctx context.Context, c Conn) error {
		if err := c.Send(ctx, &Call{Statement: s.Meta.Create}); err != nil {
			return err
		}
		version, err := s.version(ctx, c)
		if err != nil {
			return err
		}
		if version > len(s.Migrations) {
			return s.newer(version)
		}
		for _, step := range s.Migrations[version:] {
			for _, text := range step {
				if err := c.Send(ctx, &Call{Statement: &Statement{Name: "migrate", Text: text}}); err != nil {
					return err
				}
			}
		}
		return c.Send(ctx, &Call{Statement: s.Meta.Set, Args: []any{s.Name, strconv.Itoa(len(s.Migrations))}})
	})
}

// Check returns an error that wraps [driver.ErrSchema] if the tables are missing, or of another version.
func (s *Schema) Check(ctx context.Context, db Database) error {
	version, err := s.version(ctx, reader{db})
	switch want := len(s.Migrations); {
	case err != nil:
		return err
	case version > want:
		return s.newer(version)
	case version < want:
		return fmt.Errorf("%w: %w: the tables have version %d, this package needs %d; %s",
			driver.ErrStore, driver.ErrSchema, version, want, s.Hint)
	}
	return nil
}

func (s *Schema) newer(version int) error {
	return fmt.Errorf("%w: %w: the tables have version %d, this package knows %d: upgrade this process",
		driver.ErrStore, driver.ErrSchema, version, len(s.Migrations))
}

// version is 0 where none is written.
func (s *Schema) version(ctx context.Context, c Conn) (int, error) {
	value, err := s.Meta.Read(ctx, c, s.Name)
	if err != nil || value == "" {
		return 0, err
	}
	n, err := strconv.Atoi(value)
	if err != nil || n < 1 {
		return 0, fmt.Errorf("%w: %w: the version is not a number", driver.ErrStore, driver.ErrSchema)
	}
	return n, nil
}

// Text returns what Migrate runs on an empty database, for a migration tool.
func (s *Schema) Text() string {
	var b strings.Builder
	b.WriteString(s.Meta.Create.Text + ";\n")
	for _, step := range s.Migrations {
		for _, text := range step {
			b.WriteString(text + ";\n")
		}
	}
	table, _, _ := strings.Cut(strings.TrimPrefix(s.Meta.Create.Text, "CREATE TABLE IF NOT EXISTS "), " (")
	fmt.Fprintf(&b, "INSERT INTO %s (name, value) VALUES ('%s', '%d');\n", table, s.Name, len(s.Migrations))
	return b.String()
}

// Read returns a setting, or "" if it is not set.
func (m *Meta) Read(ctx context.Context, c Conn, name string) (value string, err error) {
	err = c.Send(ctx, &Call{Statement: m.Get, Args: []any{name}, Each: func(r Row) error { return r.Scan(&value) }})
	return value, err
}

// reader is the database's way of reading as a Conn.
type reader struct{ db Database }

func (r reader) Send(ctx context.Context, calls ...*Call) error { return r.db.Read(ctx, calls...) }
