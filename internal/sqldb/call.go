package sqldb

import (
	"context"
	"errors"
)

// Statement is one statement of the engine. Drivers may cache prepared statements by its address.
type Statement struct {
	// Name distinguishes it from the others: "claim".
	Name string
	Text string
	// Rows reports that it returns rows. Otherwise only the number of affected rows matters.
	Rows bool
	// Foreign says that its rows are the application's: the client library converts their values as it does for the
	// application.
	Foreign bool
	// Rides says that a driver may keep the call back and send it together with the next one: a savepoint. Its error is
	// then the next call's error, and at a commit it may be left out.
	Rides bool

	// Keep says that it lives as long as its store and is sent often, so that a connection may keep it prepared.
	Keep bool
	// Fresh asks for a plan at each call, where the client can: the table is empty at one moment and has a million rows at
	// another, and a plan that is kept knows one of them.
	Fresh bool

	// Else, if set, follows with the same arguments where this one affects no row: for a database whose insert cannot
	// write over an existing row on a condition. Drivers call [Call.Other].
	Else *Statement
	// NoWait says that where it would have to wait for another transaction it affects no row, and the call is Busy.
	NoWait bool
	// WantInsertID says that the number with which the database answers an insert, such as MySQL's LAST_INSERT_ID, is
	// [Call.InsertID].
	WantInsertID bool

	timed bool // it takes the time as its last argument
}

// Call is one statement with its arguments and the handling of its rows.
type Call struct {
	Statement *Statement
	Args      []any
	// Each is called for every row, if the statement returns rows. An error of Each ends the Send, which returns it
	// unchanged.
	Each func(Row) error
	// Affected is set by the driver: the number of rows written or, if the statement returns rows, returned.
	Affected int64
	// Must reports that nothing of the transaction may be committed if the statement affects no row:
	// [ErrNothingWritten]. A driver that pipelines a commit must make the statement itself fail; so that it can be
	// wrapped for this, its text ends in "RETURNING 1".
	Must bool
	// AtLeast is how many rows it must affect, if one is not enough. If a statement writes all of its rows or none, the
	// driver need not compare the number.
	AtLeast int64
	// InsertID is set by the driver if the statement has WantInsertID: not 0 where it has inserted a row.
	InsertID int64
	// Busy is set by the driver: see [Statement.NoWait].
	Busy bool
}

// Other returns the call that is to follow, or nil: see [Statement.Else].
func (c *Call) Other() *Call {
	if c.Affected > 0 || c.Busy || c.Statement.Else == nil {
		return nil
	}
	other := *c
	other.Statement, other.Must = c.Statement.Else, false
	return &other
}

// Missed reports whether the statement affected fewer rows than it must. Drivers call it.
func (c *Call) Missed() bool { return c.Must && c.Affected < max(c.AtLeast, 1) }

// ForEach sets what is done with the rows of a call's answer.
func (c *Call) ForEach(fn func(Row) error) *Call {
	c.Each = fn
	return c
}

// Row is one row of an answer.
type Row interface {
	// Scan copies the columns. NULL stores the zero value in an *int64, *string or *[]byte; the caller may keep
	// slices. Other destinations are as in the client library. A [Misfit] is the error of a column whose value does not
	// fit; the other columns were copied.
	Scan(dest ...any) error
}

// Conn sends statements.
type Conn interface {
	// Send sends the calls in order and reads their answers: in one round trip if the client can pipeline, otherwise
	// one by one. It stops at the first error, and returns the client's error, wrapped or not.
	Send(ctx context.Context, calls ...*Call) error
}

// TxConn is a transaction. It is not safe for concurrent use. It does not end with a context, but a Send whose
// context ends may have ended the transaction.
type TxConn[Tx any] interface {
	Conn
	Tx() Tx
	// Commit sends last as the last statements and commits: in one round trip if the client can pipeline. After any
	// error except [ErrCommitLost] the transaction has been rolled back.
	Commit(ctx context.Context, last ...*Call) error
	// Rollback ends the transaction, under a separate context if ctx has ended. On an ended transaction it does
	// nothing.
	Rollback(ctx context.Context) error
}

// Errors that drivers return to the engine.
var (
	// ErrNothingWritten: a Call with Must affected no row. Nothing was committed.
	ErrNothingWritten = errors.New("sqldb: the conditional write found nothing to write")
	// ErrCommitLost: a commit was sent, and its answer did not arrive.
	ErrCommitLost = errors.New("sqldb: the answer to the commit was lost")
)
