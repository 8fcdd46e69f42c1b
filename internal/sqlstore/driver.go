package sqlstore

import (
	"context"
	"errors"
	"time"

	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/internal/sqldb"
)

// Driver is what the engine needs from one database, reached through one client library. Tx is the handle of a
// transaction through which applications write.
//
// Every method may be called concurrently.
type Driver[Tx any] interface {
	sqldb.DB[Tx]
	// Traits returns what the engine must know about the database. It never changes.
	Traits() Traits
	// Statements returns the texts: those of [NewStatements], changed where the database needs others.
	Statements() *Statements
	// Migrations returns the schema: entry i brings the tables from version i to version i+1, as single statements
	// that are run in one transaction.
	Migrations() [][]string

	// Begin begins a transaction with first as its first statements, in one round trip if the client can pipeline. If
	// ctx ends, that cuts Begin short, but never the transaction that it returned. On any error the transaction has
	// been rolled back. An error from a scan function of first ends it likewise: Begin returns that error.
	Begin(ctx context.Context, opts BeginOptions, first ...*Call) (TxConn[Tx], error)
}

// Traits is what the engine must know about a database.
type Traits struct {
	// ReadFirst says that a read is much cheaper than a turn of the only writer: what a read can answer, such as a
	// replay, is answered by it before anything is begun.
	ReadFirst bool
	// WriterBusy, if set, reports whether a transaction has the only writer at the moment.
	WriterBusy func() bool
	// OneWriter says that a transaction shuts out all other writers. Transactions are then limited to a third of the
	// shortest lease in use, but not to less than 100 ms ([everonce.ErrTxTooLong]).
	OneWriter bool
	// MigrateHint completes the sentence "the tables are missing: ", and says what to run.
	MigrateHint string
	// Notes returns the notes of Health: sentences on the durability of the database as it is set up.
	Notes func(ctx context.Context) ([]string, error)
}

// BeginOptions are for [Driver.Begin].
type BeginOptions struct {
	// Timeout ends the transaction, counted from the call of Begin: after that it has been, or is being, rolled back,
	// and every method returns [everonce.ErrTxTooLong]. Zero is no bound.
	Timeout time.Duration
	// Key is the key that the transaction claims, if it does: see [KeyLocker].
	Key *driver.RecordID
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

// ErrKeyLocked: another transaction has claimed the key.
var ErrKeyLocked = errors.New("sqlstore: key locked")
