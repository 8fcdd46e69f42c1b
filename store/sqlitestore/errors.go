package sqlitestore

import (
	"context"
	sqldriver "database/sql/driver"
	"errors"
	"fmt"
	"strings"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/internal/sqldb"
)

// errTxEnded says that SQLite ended a transaction, after an interrupted write, a full disk, or an error of the disk, or
// because the text of a statement said so. Nothing of it took hold; the connection refuses statements until it is
// rolled back.
var errTxEnded = fmt.Errorf("%w: SQLite has rolled it back, after an error or a ROLLBACK statement", driver.ErrTxDoomed)

// errWriterBusy says that another transaction of this process held the only writer for too long.
var errWriterBusy = errors.New("sqlitestore: another transaction of this process holds the only writer")

// classify returns the meaning of an error of SQLite: by its code, and for a missing table by its message, because it
// has no code.
func classify(err error) sqldb.ErrorInfo {
	switch {
	case errors.Is(err, errWriterBusy):
		return sqldb.ErrorInfo{Class: sqldb.ClassRetry, NotDone: true}
	case errors.Is(err, errTxEnded):
		return sqldb.ErrorInfo{NotDone: true}
	case errors.Is(err, errMoved):
		return sqldb.ErrorInfo{Class: sqldb.ClassUnavailable, NotDone: true}
	case errors.Is(err, sqldriver.ErrBadConn):
		return sqldb.ErrorInfo{Class: sqldb.ClassUnavailable}
	}
	var e *sqlite.Error
	if !errors.As(err, &e) {
		return sqldb.ErrorInfo{}
	}
	switch e.Code() {
	case sqlite3.SQLITE_CONSTRAINT_UNIQUE, sqlite3.SQLITE_CONSTRAINT_PRIMARYKEY, sqlite3.SQLITE_CONSTRAINT_ROWID:
		return sqldb.ErrorInfo{Class: sqldb.ClassUnique, NotDone: true}
	case sqlite3.SQLITE_IOERR_NOMEM, sqlite3.SQLITE_IOERR_BLOCKED:
		return sqldb.ErrorInfo{NotDone: true}
	}
	switch e.Code() & 0xff {
	case sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED:
		return sqldb.ErrorInfo{Class: sqldb.ClassRetry, NotDone: true}
	case sqlite3.SQLITE_CONSTRAINT:
		return sqldb.ErrorInfo{Class: sqldb.ClassConstraint, NotDone: true}
	case sqlite3.SQLITE_FULL:
		return sqldb.ErrorInfo{Class: sqldb.ClassFull, NotDone: true}
	case sqlite3.SQLITE_TOOBIG:
		return sqldb.ErrorInfo{Class: sqldb.ClassTooLarge, NotDone: true}
	case sqlite3.SQLITE_READONLY:
		return sqldb.ErrorInfo{Class: sqldb.ClassReadOnly, NotDone: true}
	case sqlite3.SQLITE_AUTH, sqlite3.SQLITE_PERM:
		return sqldb.ErrorInfo{Class: sqldb.ClassDenied, NotDone: true}
	case sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_FORMAT:
		return sqldb.ErrorInfo{Class: sqldb.ClassCorrupt, NotDone: true}
	case sqlite3.SQLITE_CANTOPEN:
		return sqldb.ErrorInfo{Class: sqldb.ClassUnavailable, NotDone: true}
	case sqlite3.SQLITE_INTERRUPT, sqlite3.SQLITE_NOMEM, sqlite3.SQLITE_MISMATCH:
		return sqldb.ErrorInfo{NotDone: true}
	case sqlite3.SQLITE_ERROR, sqlite3.SQLITE_SCHEMA:
		if text := e.Error(); strings.Contains(text, "no such table") || strings.Contains(text, "no such column") ||
			strings.Contains(text, "has no column named") {
			return sqldb.ErrorInfo{Class: sqldb.ClassMissingTable, NotDone: true}
		}
		return sqldb.ErrorInfo{NotDone: true}
	}
	return sqldb.ErrorInfo{}
}

// isNotDatabase reports whether SQLite does not take the file for one of its databases.
func isNotDatabase(err error) bool {
	e, ok := errors.AsType[*sqlite.Error](err)
	return ok && e.Code()&0xff == sqlite3.SQLITE_NOTADB
}

// Classify is for everonce.Options.Classify. It marks with everonce.NotDone an error of SQLite that proves that the
// statement had no effect: a violated constraint, a busy, full or read-only database, a missing table. That proves
// nothing about what the work committed before, or about a gateway that it called: do not use Classify for such work.
// Other errors are returned unchanged.
//
// A statement may keep what it did before it failed: INSERT OR FAIL, ON CONFLICT FAIL, a trigger's RAISE(FAIL). The
// connections of [Store.DB] detect that. On any other connection the error looks as if the statement had no effect: do
// not use Classify there for statements that fail so.
func Classify(err error) error {
	if err == nil || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) || everonce.IsNotDone(err) {
		return err
	}
	if _, partly := errors.AsType[partlyDone](err); !partly && classify(err).NotDone {
		return everonce.NotDone(err)
	}
	return err
}
