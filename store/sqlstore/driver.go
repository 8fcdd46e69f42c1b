package sqlstore

import (
	"context"
	"errors"
	"time"

	"github.com/everonce/everonce"
)

// Driver is what one database, reached through one client library, gives the engine. Tx is the handle
// of a transaction that applications write through.
//
// Every method may be called concurrently. Arguments are int64, string, []byte or nil, times are
// microseconds since 1970 in an int64.
type Driver[Tx any] interface {
	// Traits returns what the engine must know of the database. It never changes.
	Traits() Traits
	// Statements returns the texts: those of [NewStatements], with what the database needs otherwise.
	Statements() *Statements
	// Migrations returns the schema: entry i brings the tables from version i to version i+1, as
	// single statements that are run in one transaction.
	Migrations() [][]string

	// Read sends calls that write nothing.
	Read(ctx context.Context, calls ...*Call) error
	// Write runs op, which reads and writes through the Conn, and nothing else: it has no other effect
	// and may be run again. When Write returns nil, what op wrote is durable.
	//
	// Either the whole of op is one transaction (which it may share with other calls of Write; if op fails
	// nothing of it takes hold, and the others do not suffer), or, where Traits.OneStatement is set, every
	// Send may commit by itself. If ctx ends first, Write returns its error, and op may still take hold.
	Write(ctx context.Context, op func(ctx context.Context, c Conn) error) error
	// Exclusive runs op in a transaction that no other Exclusive, of any process, runs beside.
	Exclusive(ctx context.Context, op func(ctx context.Context, c Conn) error) error

	// Begin begins a transaction with first as its first statements, in one round trip where the
	// client can pipeline. The end of ctx cuts Begin short, never the transaction that it returned. On any error
	// the transaction has been rolled back. A scan function of first that returns an error ends it
	// likewise: Begin returns that error.
	Begin(ctx context.Context, opts BeginOptions, first ...*Call) (TxConn[Tx], error)
	// Join wraps a transaction of the caller's. Its Commit and Rollback are not called. It refuses
	// with [everonce.ErrOtherStore] a transaction that it knows to be of another database.
	Join(ctx context.Context, tx Tx) (TxConn[Tx], error)
	// Classify tells what an error of the database, its client or the application's own statements means.
	Classify(err error) ErrorInfo
}

// Traits is what the engine must know of a database.
type Traits struct {
	// Name is for error texts: "PostgreSQL".
	Name string
	// Clock is the store's clock where that is the process's. If nil the statements read the database's.
	// If set, every statement takes its time as a last argument: see [Dialect.Now].
	Clock func() time.Time
	// OneStatement says that each transition is one atomic statement (writable common table expressions),
	// so that it needs no transaction around it.
	OneStatement bool
	// ReadFirst says that a read is much cheaper than a place at the only writer: what a read can
	// answer (a replay, say) is answered by it, before anything is begun.
	ReadFirst bool
	// WriterBusy, if set, reports that the only writer is taken by a transaction just now.
	WriterBusy func() bool
	// OneWriter says that a transaction shuts out all other writers; transactions are then limited to a
	// third of the shortest lease in use ([everonce.ErrTxTooLong]).
	OneWriter bool
	// MigrateHint completes the sentence "the tables are missing: ", and says what to run.
	MigrateHint string
	// Notes are told by Health: sentences on the durability of the database as it is set up.
	Notes func(ctx context.Context) ([]string, error)
}

// BeginOptions are for [Driver.Begin].
type BeginOptions struct {
	// Timeout ends the transaction, from the call of Begin on: afterwards it has been rolled back, or
	// is being, and every method answers [everonce.ErrTxTooLong]. Zero is no bound.
	Timeout time.Duration
	// Key is the key that the transaction claims, if it does: see [KeyLocker].
	Key *everonce.RecordID
}

// Statement is one text of the engine's. Drivers may keep what they prepared by its address.
type Statement struct {
	// Name tells it from the others: "claim".
	Name string
	Text string
	// Rows says that it answers rows; else only how many it affected counts.
	Rows bool
}

// Call is one statement with its arguments, and what to do with its answer.
type Call struct {
	Statement *Statement
	Args      []any
	// Each is called for every row, where the statement answers rows. Its error ends the Send and is returned as it is.
	Each func(Row) error
	// Affected is set by the driver: how many rows the statement wrote; for a statement that answers rows,
	// how many it answered.
	Affected int64
	// Must says that nothing of the transaction may be committed if the statement affects no row:
	// [ErrNothingWritten]. A driver that pipelines a commit must make the statement fail by itself then; the text of
	// a statement that is used so ends in "RETURNING 1", for it to be wrapped.
	Must bool
	// AtLeast is how many rows it must affect then, where one is not enough. Where all of a statement's rows are
	// written or none, the driver need not count.
	AtLeast int64
}

// Missed reports whether the statement has affected less than it must: for drivers.
func (c *Call) Missed() bool { return c.Must && c.Affected < max(c.AtLeast, 1) }

// Row is one row of an answer.
type Row interface {
	// Scan copies the columns. NULL stores the zero value in an *int64, *string or *[]byte; slices are
	// the caller's to keep. Other destinations are as the client library has them.
	Scan(dest ...any) error
}

// Conn is what statements are sent through.
type Conn interface {
	// Send sends the calls in their order and reads their answers: in one round trip where the client
	// can pipeline, else one after the other. It stops at the first error, and returns it as the client
	// gave it, wrapped or not.
	Send(ctx context.Context, calls ...*Call) error
}

// TxConn is a transaction. It is not safe for concurrent use, and it does not end with a context: a Send
// whose context ends may have ended the transaction.
type TxConn[Tx any] interface {
	Conn
	Tx() Tx
	// Commit sends last as the last statements and commits: in one round trip where the client can
	// pipeline. On any error the transaction has been rolled back, but for [ErrCommitLost].
	Commit(ctx context.Context, last ...*Call) error
	// Rollback ends the transaction, under a context of its own if ctx is over. After the end it does nothing.
	Rollback(ctx context.Context) error
}

// KeyLocker is an optional power of a [Driver] whose database has no lock that can be tried: it knows the
// keys that open transactions of this process have claimed. With it, [Driver.Begin] refuses a
// BeginOptions.Key that is locked with [ErrKeyLocked], before it waits for anything.
type KeyLocker[Tx any] interface {
	// Locked reports whether an open transaction has claimed the key.
	Locked(id everonce.RecordID) bool
	// LockKey locks the key for an open transaction until that ends, and reports false where another has it.
	LockKey(tx TxConn[Tx], id everonce.RecordID) bool
}

// What drivers tell the engine.
var (
	// ErrNothingWritten: a Call with Must affected no row. Nothing was committed.
	ErrNothingWritten = errors.New("sqlstore: the conditional write found nothing to write")
	// ErrCommitLost: a commit was sent and its answer did not come.
	ErrCommitLost = errors.New("sqlstore: the answer to the commit was lost")
	// ErrKeyLocked: another transaction has claimed the key.
	ErrKeyLocked = errors.New("sqlstore: key locked")
)

// ErrorClass is what an error of the database means.
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
	// ClassConstraint is another constraint than a unique one.
	ClassConstraint
	// ClassMissingTable is a table or column that is not there.
	ClassMissingTable
	// ClassFull is a full disk, or a database at its bound.
	ClassFull
	// ClassTooLarge is a value that the database refuses by its size.
	ClassTooLarge
	// ClassReadOnly is a database that takes no writes.
	ClassReadOnly
	// ClassDenied is a missing permission, or a refused login.
	ClassDenied
	// ClassCorrupt is a damaged database.
	ClassCorrupt
	// ClassUnavailable is a database that can not be reached, or a connection that broke; what was sent may or
	// may not have been done.
	ClassUnavailable
)

// ErrorInfo is what an error means.
type ErrorInfo struct {
	Class ErrorClass
	// NotDone says that the statement surely took no hold.
	NotDone bool
}
