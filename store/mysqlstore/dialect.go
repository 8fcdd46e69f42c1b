package mysqlstore

import (
	"context"
	"fmt"
	"strconv"

	"github.com/everonce/everonce/internal/sqldb"
	"github.com/everonce/everonce/internal/sqlstore"
)

// now is the server's clock at the statement's start, whatever the time zone.
const now = "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))"

// newDialect says how the texts of statements are MySQL's and MariaDB's.
func newDialect(t *tables) *sqldb.Dialect {
	return &sqldb.Dialect{
		Name:         "MySQL or MariaDB",
		Placeholder:  func(n int, _ sqldb.ArgKind) string { return "?" + strconv.Itoa(n) },
		Now:          now,
		OneStatement: true,
		MySQL:        true,
		SkipLocked:   "FOR UPDATE SKIP LOCKED",
		Table:        t.name,
		Index:        func(name string) string { return quoted(t.prefix + name) },
		Serial:       "bigint AUTO_INCREMENT PRIMARY KEY",
		Int:          "bigint",
		Text:         "varbinary(512)",
		Long:         "mediumblob",
		Bytes:        "longblob",
	}
}

func newStatements(t *tables, dialect *sqldb.Dialect) *sqlstore.Statements {
	return sqlstore.NewStatements(sqlstore.Dialect{Dialect: dialect, Record: t.record, Step: t.step, Meta: t.meta, Greatest: "greatest"})
}

// Traits describes the database to the engine.
func (d *database) Traits() sqlstore.Traits {
	return sqlstore.Traits{
		MigrateHint: "run the store's Migrate once, or the text of its Schema with your own migration tool",
		Notes:       d.notes,
		Check: func(ctx context.Context) error {
			_, err := d.known(ctx, d.db)
			d.prepare(ctx, d.statements.Lock) // by which Join detects transactions of another *sql.DB
			return err
		},
	}
}

var readSettings = &sqldb.Statement{
	Name: "settings", Rows: true,
	Text: "SELECT VERSION(), @@innodb_flush_log_at_trx_commit, @@innodb_rollback_on_timeout, @@innodb_lock_wait_timeout, @@log_bin, @@sync_binlog, @@read_only",
}

// notes returns what in the server's settings weakens the store's guarantees, or has a duplicate wait.
func (d *database) notes(ctx context.Context) (notes []string, err error) {
	var version string
	var flush, rollback, wait, binlog, sync, readOnly int64
	err = d.Read(ctx, (&sqldb.Call{Statement: readSettings}).ForEach(func(r sqldb.Row) error {
		return r.Scan(&version, &flush, &rollback, &wait, &binlog, &sync, &readOnly)
	}))
	if err != nil {
		return nil, err
	}
	if flush != 1 {
		notes = append(notes, fmt.Sprintf("innodb_flush_log_at_trx_commit is %d: a crash of the server or the machine loses the commits of the last moments.", flush))
	}
	if binlog != 0 && sync != 1 {
		notes = append(notes, fmt.Sprintf("sync_binlog is %d: after a crash of the machine the server and its replicas may differ.", sync))
	}
	if len(notes) == 0 {
		notes = append(notes, "Acknowledged writes are on the disk of the server (innodb_flush_log_at_trx_commit is 1). A failover to a replica that had not received them loses them.")
	}
	if rollback != 0 {
		notes = append(notes, "innodb_rollback_on_timeout is on: a duplicate of an open transaction's key fails, and ends the transaction that it comes in, instead of being in progress.")
	}
	if !isMariaDB(version) && wait > 1 {
		notes = append(notes, fmt.Sprintf("innodb_lock_wait_timeout is %d: a duplicate of an open transaction's key waits so many seconds. Set it to 1 in the data source name.", wait))
	}
	if readOnly != 0 {
		notes = append(notes, "The server is read-only: it accepts writes of administrators only.")
	}
	return notes, nil
}
