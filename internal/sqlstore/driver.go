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
	// Traits returns what the engine must know about the database. It never changes.
	Traits() Traits
	// Statements returns the texts: those of [NewStatements], changed where the database needs others.
	Statements() *Statements
	// Migrations returns the schema: entry i brings the tables from version i to version i+1, as single statements
	// that are run in one transaction.
	Migrations() [][]string

	// Read sends calls that write nothing.
	Read(ctx context.Context, calls ...*Call) error
	// Write runs op, which reads and writes through the Conn and does nothing else: it has no other effect and may be
	// run again. When Write returns nil, what op wrote is durable.
	//
	// Either the whole of op is one transaction, or, if [Dialect.OneStatement] is set, every Send may commit by itself.
	// A transaction may be shared with other calls of Write: if op fails, nothing of it takes hold, and the others
	// are not affected. If ctx ends first, Write returns its error, and op may still take hold.
	Write(ctx context.Context, op func(ctx context.Context, c Conn) error) error
	// Exclusive runs op in a transaction during which no other Exclusive, of any process, runs.
	Exclusive(ctx context.Context, op func(ctx context.Context, c Conn) error) error

	// Begin begins a transaction with first as its first statements, in one round trip if the client can pipeline. If
	// ctx ends, that cuts Begin short, but never the transaction that it returned. On any error the transaction has
	// been rolled back. An error from a scan function of first ends it likewise: Begin returns that error.
	Begin(ctx context.Context, opts BeginOptions, first ...*Call) (TxConn[Tx], error)
	// Join wraps a transaction of the caller, whose Commit and Rollback are then not called. It refuses with
	// [driver.ErrOtherStore] a transaction that it knows to be of another database.
	Join(ctx context.Context, tx Tx) (TxConn[Tx], error)
	// Classify tells what an error of the database, its client or the application's own statements means.
	Classify(err error) ErrorInfo
}

// Traits is what the engine must know about a database.
type Traits struct {
	// Name is for error texts: "PostgreSQL".
	Name string
	// Clock is the store's clock if that is the process's. If nil, the statements read the database's clock. If set,
	// every statement takes its time as a last argument: see [Dialect.Now].
	Clock func() time.Time
	// ReadFirst says that a read is much cheaper than a turn of the only writer: what a read can answer, such as a
	// replay, is answered by it before anything is begun.
	ReadFirst bool
	// WriterBusy, if set, reports whether a transaction has the only writer at the moment.
	WriterBusy func() bool
	// OneWriter says that a transaction shuts out all other writers. Transactions are then limited to a third of the
	// shortest lease in use, but not to less than 100 ms ([driver.ErrTxTooLong]).
	OneWriter bool
	// MigrateHint completes the sentence "the tables are missing: ", and says what to run.
	MigrateHint string
	// Notes returns the notes of Health: sentences on the durability of the database as it is set up.
	Notes func(ctx context.Context) ([]string, error)
}

// BeginOptions are for [Driver.Begin].
type BeginOptions struct {
	// Timeout ends the transaction, counted from the call of Begin: after that it has been, or is being, rolled back,
	// and every method returns [driver.ErrTxTooLong]. Zero is no bound.
	Timeout time.Duration
	// Key is the key that the transaction claims, if it does: see [KeyLocker].
	Key *driver.RecordID
}

// Statement is one text of the engine. Drivers may keep what they prepared by its address.
type Statement struct {
	// Name distinguishes it from the others: "claim".
	Name string
	Text string
	// Rows says that it returns rows; otherwise only the number of rows that it affected counts.
	Rows bool
}

// Call is one statement with its arguments, and what to do with its answer.
type Call struct {
	Statement *Statement
	Args      []any
	// Each is called for every row, if the statement returns rows. Its error ends the Send and is returned as it is.
	Each func(Row) error
	// Affected is set by the driver: how many rows the statement wrote or, if it returns rows, how many it returned.
	Affected int64
	// Must says that nothing of the transaction may be committed if the statement affects no row:
	// [ErrNothingWritten]. A driver that pipelines a commit must then make the statement itself fail; for this, the
	// text of a statement that is used so ends in "RETURNING 1", so that it can be wrapped.
	Must bool
	// AtLeast is how many rows it must then affect, if one is not enough. If a statement writes all of its rows or
	// none, the driver need not count.
	AtLeast int64
}

// Missed reports whether the statement has affected fewer rows than it must. It is for drivers.
func (c *Call) Missed() bool { return c.Must && c.Affected < max(c.AtLeast, 1) }

// Row is one row of an answer.
type Row interface {
	// Scan copies the columns. NULL stores the zero value in an *int64, *string or *[]byte; the caller may keep
	// slices. Other destinations are as in the client library.
	Scan(dest ...any) error
}

// Conn sends statements.
type Conn interface {
	// Send sends the calls in their order and reads their answers: in one round trip if the client can pipeline,
	// otherwise one after the other. It stops at the first error, and returns it as the client gave it, wrapped or
	// not.
	Send(ctx context.Context, calls ...*Call) error
}

// TxConn is a transaction. It is not safe for concurrent use, and it does not end with a context; but a Send whose
// context ends may have ended the transaction.
type TxConn[Tx any] interface {
	Conn
	Tx() Tx
	// Commit sends last as the last statements and commits: in one round trip if the client can pipeline. On any
	// error except [ErrCommitLost] the transaction has been rolled back.
	Commit(ctx context.Context, last ...*Call) error
	// Rollback ends the transaction, under a context of its own if ctx has ended. After the end it does nothing.
	Rollback(ctx context.Context) error
}

// KeyLocker is an optional power of a [Driver] whose database has no lock that can be tried: it knows the keys that
// open transactions of this process have claimed. With it, [Driver.Begin] refuses a BeginOptions.Key that is locked
// with [ErrKeyLocked], before it waits for anything.
type KeyLocker[Tx any] interface {
	// Locked reports whether an open transaction has claimed the key.
	Locked(id driver.RecordID) bool
	// LockKey locks the key for an open transaction until that ends, and returns false if another one has it.
	LockKey(tx TxConn[Tx], id driver.RecordID) bool
}

// What drivers tell the engine.
var (
	// ErrNothingWritten: a Call with Must affected no row. Nothing was committed.
	ErrNothingWritten = errors.New("sqlstore: the conditional write found nothing to write")
	// ErrCommitLost: a commit was sent, and its answer did not arrive.
	ErrCommitLost = errors.New("sqlstore: the answer to the commit was lost")
	// ErrKeyLocked: another transaction has claimed the key.
	ErrKeyLocked = errors.New("sqlstore: key locked")
)

// ErrorClass says what an error of the database means.
type ErrorClass uint8

// The classes.
const (
	// ClassOther is every error that has no class of its own.
	ClassOther ErrorClass = iota
	// ClassUnique is a duplicate in a unique index.
	ClassUnique
	// ClassRetry is a deadlock, a serialization failure, or a busy database: nothing took hold, and the whole
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
	// ClassReadOnly is a database that takes no writes.
	ClassReadOnly
	// ClassDenied is a missing permission, or a refused login.
	ClassDenied
	// ClassCorrupt is a damaged database.
	ClassCorrupt
	// ClassUnavailable is a database that cannot be reached, or a connection that broke; what was sent may or may not
	// have been done.
	ClassUnavailable
)

// ErrorInfo is what an error means.
type ErrorInfo struct {
	Class ErrorClass
	// NotDone says that the statement certainly took no hold.
	NotDone bool
}
