package pgxstore

import (
	"database/sql"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/internal/sqlstore"
)

// Options are the options of a store. The zero value of each field is its default.
type Options struct {
	// Schema is the schema of the tables. Default: the first one of the connection's search_path. Set it where the
	// work, or a pooler, changes that: its record would follow. Migrate creates it if it does not exist; the text
	// returned by [Store].Schema does not.
	Schema string
	// TablePrefix begins the names of the tables. Default "everonce_". It and Schema consist of at most 40 of a-z,
	// 0-9 and _, and do not begin with a digit; nor does Schema with pg_.
	TablePrefix string
	// Isolation is the level of the transactions that the store begins for work. Default: the connection's own, which
	// is read committed unless it was changed. At repeatable read and serializable a transaction may fail because of
	// another one, with a serialization failure: Transact runs it again.
	Isolation sql.IsolationLevel
	// Listen wakes callers that wait for an attempt of another process at once, by LISTEN and NOTIFY. Otherwise they
	// ask again, after a second at most. Set it in all processes. While a caller waits, the store holds one separate
	// connection, which must be a session: not one of a pooler in transaction mode. [NewSQL] needs pgx's stdlib for it,
	// and two connections. Neither a rollback nor the end of a TransactBatch wakes a caller.
	Listen bool
	// AsyncCommit leaves commits as the connection's synchronous_commit says, even if that is off: a crash of the
	// server then loses the operations of the last moments, and they run again. Without it a transaction in which the
	// store writes commits at "on" at least, the caller's of DoTx too. Default false.
	AsyncCommit bool
}

const defaultPrefix = "everonce_"

// tables are the names of a store's tables, quoted and qualified.
type tables struct {
	schema             string // as given, may be empty
	prefix             string
	record, step, meta string
	name               func(table string) string
}

// settings are options that were checked.
type settings struct {
	tables tables
	begin  string // the statement that begins a transaction
	level  sql.IsolationLevel
	listen bool
	async  bool
}

// Validate returns the error with which [New] and [NewSQL] would refuse the options. It does not connect to anything.
func (o *Options) Validate() error {
	_, err := o.settings()
	return err
}

func (o *Options) settings() (*settings, error) {
	var given Options
	if o != nil {
		given = *o
	}
	if given.TablePrefix == "" {
		given.TablePrefix = defaultPrefix
	}
	if given.Schema != "" {
		if err := sqlstore.ValidateName("schema", given.Schema); err != nil {
			return nil, err
		}
		if strings.HasPrefix(given.Schema, "pg_") {
			return nil, fmt.Errorf("%w: the schema %q begins with pg_, which PostgreSQL reserves", driver.ErrInvalidArgument, given.Schema)
		}
	}
	if err := sqlstore.ValidateName("table prefix", given.TablePrefix); err != nil {
		return nil, err
	}
	begin, err := beginText(given.Isolation)
	if err != nil {
		return nil, err
	}
	name := func(table string) string {
		if given.Schema == "" {
			return pgx.Identifier{given.TablePrefix + table}.Sanitize()
		}
		return pgx.Identifier{given.Schema, given.TablePrefix + table}.Sanitize()
	}
	return &settings{
		tables: tables{
			schema: given.Schema, prefix: given.TablePrefix,
			record: name("record"), step: name("step"), meta: name("meta"), name: name,
		},
		begin: begin,
		level: given.Isolation, listen: given.Listen, async: given.AsyncCommit,
	}, nil
}

const beginReadCommitted = "begin isolation level read committed"

func beginText(level sql.IsolationLevel) (string, error) {
	switch level {
	case sql.LevelDefault:
		return "begin", nil
	case sql.LevelReadCommitted:
		return beginReadCommitted, nil
	case sql.LevelRepeatableRead:
		return "begin isolation level repeatable read", nil
	case sql.LevelSerializable:
		return "begin isolation level serializable", nil
	}
	return "", fmt.Errorf("%w: Options.Isolation is %v; use read committed, repeatable read or serializable",
		driver.ErrInvalidArgument, level)
}
