package sqlstore

import (
	"context"
	"errors"
	"time"

	"github.com/everonce/everonce/driver"
)

// Driver is what the engine needs from one database, reached through one client library. Tx is the handle of a
// transaction through which applications write.
//
// Every method may be called concurrently. Arguments are int64, string, []byte or nil; times are microseconds since
// 1970 in an int64.
type Driver[Tx any] interface {
	// Traits describes the database to the engine. The result never changes.
	Traits() Traits
	// Statements returns the texts: those of [NewStatements], changed where the database needs others.
	Statements() *Statements
	// Migrations returns the schema: entry i brings the tables from version i to version i+1, as single statements
	// that are run in one transaction.
	Migrations() [][]string

	// Read sends calls that write nothing.
	Read(ctx context.Context, calls ...*Call) error
	// Write runs op, which reads and writes through the Conn, has no other effect, and may be run again. When Write
	// returns nil, what op wrote is durable.
	//
	// Either all of op is one transaction, or, if [Dialect.OneStatement] is set, every Send may commit by itself.
	// Other calls of Write may share the transaction: if op fails, its writes are undone and those of the others are
	// not. If ctx ends first, Write returns its error, and op may still be committed.
	Write(ctx context.Context, op func(ctx context.Context, c Conn) error) error
	// Exclusive runs op in a transaction. No two calls of Exclusive run at once, in any process.
	Exclusive(ctx context.Context, op func(ctx context.Context, c Conn) error) error

	// Begin begins a transaction with first as its first statements, in one round trip if the client can pipeline.
	// ctx bounds Begin, not the transaction. After an error, including one of a scan function of first, the
	// transaction has been rolled back.
	Begin(ctx context.Context, opts BeginOptions, first ...*Call) (TxConn[Tx], error)
	// Join wraps a transaction of the caller. Its Commit and Rollback are then not called. Join returns
	// [driver.ErrOtherStore] for a transaction that it recognises to be on another database.
	Join(ctx context.Context, tx Tx) (TxConn[Tx], error)
	// Classify returns what an error of the database, its client or the application's statements means.
	Classify(err error) ErrorInfo
}

// Traits are the properties of a database that the engine must know.
type Traits struct {
	// Name is for error texts: "PostgreSQL".
	Name string
	// Clock is the store's clock if that is the process's. If it is nil, the statements read the database's clock. If
	// it is set, every statement takes the time as its last argument: see [Dialect.Now].
	Clock func() time.Time
	// ReadFirst reports that a read is much cheaper than waiting for the only writer. The engine then first tries to
	// answer a call, such as a replay, by a read.
	ReadFirst bool
	// WriterBusy, if set, reports whether a transaction holds the only writer now.
	WriterBusy func() bool
	// OneWriter reports that a transaction blocks all other writers. Transactions are then limited to a third of the
	// shortest lease in use, and at least 100 ms ([driver.ErrTxTooLong]).
	OneWriter bool
	// MigrateHint completes the sentence "the tables are missing: " with what to run.
	MigrateHint string
	// Notes returns the notes of Health: sentences about the durability of the database as it is configured.
	Notes func(ctx context.Context) ([]string, error)
}

// BeginOptions are for [Driver.Begin].
type BeginOptions struct {
	// Timeout limits the transaction, counted from the call of Begin: after it the transaction is rolled back, and
	// every method returns [driver.ErrTxTooLong]. Zero is no limit.
	Timeout time.Duration
	// Key is the key that the transaction claims, if any: see [KeyLocker].
	Key *driver.RecordID
}

// Statement is one statement of the engine. Drivers may cache prepared statements by its address.
type Statement struct {
	// Name distinguishes it from the others: "claim".
	Name string
	Text string
	// Rows reports that it returns rows. Otherwise only the number of affected rows matters.
	Rows bool
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
	// AtLeast is how many rows it must affect, if one is not enough. If a statement writes all of its rows or none,
	// the driver need not count.
	AtLeast int64
}

// Missed reports whether the statement affected fewer rows than it must. Drivers call it.
func (c *Call) Missed() bool { return c.Must && c.Affected < max(c.AtLeast, 1) }

// Row is one row of an answer.
type Row interface {
	// Scan copies the columns. NULL stores the zero value in an *int64, *string or *[]byte; the caller may keep
	// slices. Other destinations are as in the client library.
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
	// Rollback ends the transaction, under a context of its own if ctx has ended. On an ended transaction it does
	// nothing.
	Rollback(ctx context.Context) error
}

// KeyLocker is an optional power of a [Driver] whose database has no lock that can be tried: it keeps the keys that
// open transactions of this process have claimed. With it, [Driver.Begin] returns [ErrKeyLocked] for a
// BeginOptions.Key that is locked, before it waits for anything.
type KeyLocker[Tx any] interface {
	// Locked reports whether an open transaction has claimed the key.
	Locked(id driver.RecordID) bool
	// LockKey locks the key for an open transaction until that ends. It returns false if another one holds the lock.
	LockKey(tx TxConn[Tx], id driver.RecordID) bool
}

// Errors that drivers return to the engine.
var (
	// ErrNothingWritten: a Call with Must affected no row. Nothing was committed.
	ErrNothingWritten = errors.New("sqlstore: the conditional write found nothing to write")
	// ErrCommitLost: a commit was sent, and its answer did not arrive.
	ErrCommitLost = errors.New("sqlstore: the answer to the commit was lost")
	// ErrKeyLocked: another transaction has claimed the key.
	ErrKeyLocked = errors.New("sqlstore: key locked")
)

// ErrorClass is the class of an error of the database.
type ErrorClass uint8

// The classes.
const (
	// ClassOther is every error that has no class of its own.
	ClassOther ErrorClass = iota
	// ClassUnique is a duplicate in a unique index.
	ClassUnique
	// ClassRetry is a deadlock, a serialization failure, or a busy database: nothing was written, and the whole
	// transaction may be run again.
	ClassRetry
	// ClassConstraint is a violation of a constraint that is not a unique one.
	ClassConstraint
	// ClassMissingTable is a table or column that does not exist.
	ClassMissingTable
	// ClassFull is a full disk, or a database that has reached its limit.
	ClassFull
	// ClassTooLarge is a value that the database refuses because of its size.
	ClassTooLarge
	// ClassReadOnly is a database that accepts no writes.
	ClassReadOnly
	// ClassDenied is a missing permission, or a refused login.
	ClassDenied
	// ClassCorrupt is a damaged database.
	ClassCorrupt
	// ClassUnavailable is a database that cannot be reached, or a connection that broke. What was sent may or may not
	// have been executed.
	ClassUnavailable
)

// ErrorInfo is what an error means.
type ErrorInfo struct {
	Class ErrorClass
	// NotDone reports that the statement certainly had no effect.
	NotDone bool
}
