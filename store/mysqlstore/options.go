package mysqlstore

import (
	"database/sql"
	"fmt"

	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/internal/sqlstore"
)

// Options are the options of a store. The zero value of each field is its default.
type Options struct {
	// Database is the database of the tables, which must exist. Default: the database of the connection. Set it where
	// the work changes that, by USE: its record would follow.
	Database string
	// TablePrefix begins the names of the tables. Default "everonce_". It and Database consist of at most 40 of a-z,
	// 0-9 and _, and do not begin with a digit.
	TablePrefix string
	// Isolation is the level of the transactions that the store begins. Default: the server's own, which is repeatable
	// read unless it was changed. Any other costs a round trip more for each transaction.
	Isolation sql.IsolationLevel
}

const defaultPrefix = "everonce_"

// tables are the names of a store's tables, quoted and qualified.
type tables struct {
	prefix             string
	record, step, meta string
	name               func(table string) string
}

// quoted is a name in a statement, whatever the sql_mode.
func quoted(name string) string { return "`" + name + "`" }

// Validate returns the error with which [New] would refuse the options. It does not connect to anything.
func (o *Options) Validate() error {
	_, _, err := o.settings()
	return err
}

func (o *Options) settings() (t tables, level sql.IsolationLevel, err error) {
	var given Options
	if o != nil {
		given = *o
	}
	if given.TablePrefix == "" {
		given.TablePrefix = defaultPrefix
	}
	if err := sqlstore.ValidateName("table prefix", given.TablePrefix); err != nil {
		return t, level, err
	}
	database := ""
	if given.Database != "" {
		if err := sqlstore.ValidateName("database", given.Database); err != nil {
			return t, level, err
		}
		database = quoted(given.Database) + "."
	}
	switch given.Isolation {
	case sql.LevelDefault, sql.LevelReadCommitted, sql.LevelRepeatableRead, sql.LevelSerializable:
	default:
		return t, level, fmt.Errorf("%w: Options.Isolation is %v; use read committed, repeatable read or serializable",
			driver.ErrInvalidArgument, given.Isolation)
	}
	name := func(table string) string { return database + quoted(given.TablePrefix+table) }
	return tables{prefix: given.TablePrefix, record: name("record"), step: name("step"), meta: name("meta"), name: name}, given.Isolation, nil
}
