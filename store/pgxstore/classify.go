package pgxstore

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"io"
	"net"
	"syscall"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/internal/sqldb"
)

// Classify is for everonce.Options.Classify, if the work's only effect is one statement, or one transaction, in
// PostgreSQL. It marks with everonce.NotDone the errors that prove that there was no effect: those with which the
// server answered a statement (a constraint, a deadlock, a serialization failure, a permission), and those before
// anything was sent. Other errors, such as a broken connection, are returned unchanged: the outcome is unknown.
//
// Do not use it for work that also calls a gateway, or that runs several statements without a transaction: the first
// may have had its effect when the second failed.
func Classify(err error) error {
	if err == nil || everonce.IsNotDone(err) {
		return err
	}
	if _, permanent := errors.AsType[*everonce.PermanentError](err); permanent {
		return err
	}
	if classify(err).NotDone {
		return everonce.NotDone(err)
	}
	return err
}

// classify returns the class of an error by its SQLSTATE, for every client library whose errors wrap a *pgconn.PgError.
func classify(err error) sqldb.ErrorInfo {
	if errors.Is(err, errBroken) {
		return sqldb.ErrorInfo{Class: sqldb.ClassRetry, NotDone: true}
	}
	pgErr, ok := errors.AsType[*pgconn.PgError](err)
	if !ok {
		return classifyClient(err)
	}
	info := sqldb.ErrorInfo{
		Class: classOf(pgErr),
		// The server undid a statement that it answers with an error. After a fatal one, which ends the
		// connection, nothing is sure: a commit may wait for a standby while it is told to end.
		NotDone: !fatal(pgErr) && !lost(pgErr.Code),
	}
	if _, connect := errors.AsType[*pgconn.ConnectError](err); connect {
		info.NotDone = true // refused at the door
	}
	return info
}

func classifyClient(err error) sqldb.ErrorInfo {
	if errors.Is(err, pgx.ErrTxCommitRollback) {
		return sqldb.ErrorInfo{NotDone: true}
	}
	if _, connect := errors.AsType[*pgconn.ConnectError](err); connect || safeToRetry(err) {
		return sqldb.ErrorInfo{Class: sqldb.ClassUnavailable, NotDone: true}
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return sqldb.ErrorInfo{}
	}
	if isConnectionError(err) {
		return sqldb.ErrorInfo{Class: sqldb.ClassUnavailable}
	}
	return sqldb.ErrorInfo{}
}

// safeToRetry is pgx's word that nothing was sent, but for one error: where the answer to a statement in
// the simple protocol does not come, pgx says "conn closed" too, and that nothing was sent.
func safeToRetry(err error) bool {
	return pgconn.SafeToRetry(err) && !errors.Is(err, pgconn.ErrConnClosed)
}

func fatal(e *pgconn.PgError) bool {
	severity := e.SeverityUnlocalized
	if severity == "" { // before PostgreSQL 9.6
		severity = e.Severity
	}
	return severity == "FATAL" || severity == "PANIC"
}

// lost reports whether a SQLSTATE says "it may have been done": connection exceptions, which a proxy in between answers
// with, and the two that are named so.
func lost(code string) bool {
	return codeClass(code) == "08" || code == "40003" || code == idleTooLong
}

// idleTooLong is the SQLSTATE of a session that the server ended because it was idle in its transaction.
const idleTooLong = "25P03"

// txTimeout is the SQLSTATE of a session that the server has ended as its transaction took too long (PostgreSQL 17). In
// place of the answer to a commit it is not proof enough: the time may run out just as that is made.
const txTimeout = "25P04"

func isTxTimeout(err error) bool {
	pgErr, ok := errors.AsType[*pgconn.PgError](err)
	return ok && pgErr.Code == txTimeout
}

// isSerialization reports whether a statement failed for the sake of another transaction, which is above read committed
// alone.
func isSerialization(err error) bool {
	pgErr, ok := errors.AsType[*pgconn.PgError](err)
	return ok && pgErr.Code == "40001"
}

func codeClass(code string) string {
	if len(code) < 2 {
		return ""
	}
	return code[:2]
}

func classOf(e *pgconn.PgError) sqldb.ErrorClass {
	switch e.Code {
	case "23505":
		return sqldb.ClassUnique
	case "40001", "40P01", "55P03", // serialization failure, deadlock, lock not available
		"53200": // the table of locks is full, of this transaction's and others'
		return sqldb.ClassRetry
	case "42P01", "42703", "3F000": // no such table, column, schema
		return sqldb.ClassMissingTable
	case "53100":
		return sqldb.ClassFull
	case "25006":
		return sqldb.ClassReadOnly
	case "42501":
		return sqldb.ClassDenied
	case "XX001", "XX002":
		return sqldb.ClassCorrupt
	case "53300", "57P01", "57P02", "57P03", "57P05", "3D000": // too many connections, shutting down or starting up, no such database
		return sqldb.ClassUnavailable
	}
	switch codeClass(e.Code) {
	case "08":
		return sqldb.ClassUnavailable
	case "23":
		return sqldb.ClassConstraint
	case "28":
		return sqldb.ClassDenied
	case "54":
		return sqldb.ClassTooLarge
	}
	return sqldb.ClassOther
}

// isConnectionError reports whether an error comes from the way to the server: from net, pgx or database/sql.
func isConnectionError(err error) bool {
	for _, target := range [...]error{
		io.EOF, io.ErrUnexpectedEOF, net.ErrClosed, syscall.ECONNRESET, syscall.ECONNREFUSED, syscall.EPIPE,
		pgconn.ErrConnClosed, sqldriver.ErrBadConn, sql.ErrConnDone,
	} {
		if errors.Is(err, target) {
			return true
		}
	}
	_, ok := errors.AsType[net.Error](err)
	return ok
}
