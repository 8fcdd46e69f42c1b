package sqldb

import (
	"context"

	"github.com/everonce/everonce/driver"
)

// Database sends statements to one SQL database.
//
// Every method may be called concurrently. Arguments are int64, string, []byte or nil; times are microseconds since
// 1970 in an int64.
type Database interface {
	// Dialect returns how the database's texts differ from others'. It never changes.
	Dialect() *Dialect
	// Read sends calls that write nothing.
	Read(ctx context.Context, calls ...*Call) error
	// Write runs op, which reads and writes through the Conn, has no other effect, and may be run again. When Write
	// returns nil, what op wrote is durable.
	//
	// Either all of op is one transaction, or, if [Dialect.OneStatement] is set, every Send may commit alone. Other
	// calls of Write may share the transaction: if op fails, its writes are undone and the other calls' writes are not.
	// If ctx ends first, Write returns its error, and op may still be committed.
	Write(ctx context.Context, op func(ctx context.Context, c Conn) error) error
	// Exclusive runs op in a transaction. No two calls of Exclusive run at once, in any process.
	Exclusive(ctx context.Context, op func(ctx context.Context, c Conn) error) error
	// Classify returns what an error of the database, its client or the application's statements means.
	Classify(err error) ErrorInfo
}

// DB is a [Database] whose transactions an application holds as a Tx.
type DB[Tx any] interface {
	Database
	// Join wraps a transaction of the caller. Its Commit and Rollback are then not called. Join returns
	// [driver.ErrOtherStore] for a transaction that it recognises to be on another database.
	Join(ctx context.Context, tx Tx) (TxConn[Tx], error)
}

// Of returns the database of a store, and reports whether it has one in which packages can keep their own tables.
func Of[Tx any](store driver.TxStore[Tx]) (DB[Tx], bool) {
	of, ok := driver.PowerOf[interface{ SQL() DB[Tx] }](store)
	if !ok {
		return nil, false
	}
	return of.SQL(), true
}

// SingleWriter is an optional power of a [Database] whose [Database.Write] begins and ends a transaction with separate
// statements.
type SingleWriter interface {
	// WriteOne is Write of one call. The server ends the transaction with the statement: a process that is stopped
	// meanwhile keeps no locks.
	WriteOne(ctx context.Context, call *Call) error
}

// Listener is an optional power of a [Database] that can wait for announcements of other processes.
type Listener interface {
	// Listen calls heard once it listens and then after each announcement on the channel, until ctx ends or the
	// connection is lost, and returns why. Announcements are lost while no process listens.
	Listen(ctx context.Context, channel string, heard func()) error
}
