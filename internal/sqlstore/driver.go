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
	// Traits describes the database to the engine. The result never changes.
	Traits() Traits
	// Statements returns the statements: the ones from [NewStatements], changed where the database needs others.
	Statements() *Statements
	// Migrations returns the schema: entry i brings the tables from version i to version i+1, as single statements
	// that are run in one transaction.
	Migrations() [][]string

	// Begin begins a transaction with first as its first statements, in one round trip if the client can pipeline.
	// ctx bounds Begin, not the transaction. After an error, including one of a scan function of first, the
	// transaction has been rolled back.
	Begin(ctx context.Context, opts BeginOptions, first ...*sqldb.Call) (sqldb.TxConn[Tx], error)
}

// Traits are the properties of a database that the engine must know.
type Traits struct {
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
	// Check, if set, is called before the first use, a migration too, and again when there are tables: it refuses a
	// database that is set up so that it cannot keep the store's promises.
	Check func(ctx context.Context) error
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

// KeyLocker is an optional power of a [Driver] whose database has no lock that can be tried: it keeps the keys that
// open transactions of this process have claimed. With it, [Driver.Begin] returns [ErrKeyLocked] for a
// BeginOptions.Key that is locked, before it waits for anything.
type KeyLocker[Tx any] interface {
	// Locked reports whether an open transaction has claimed the key.
	Locked(id driver.RecordID) bool
	// LockKey locks the key for an open transaction until that ends. It returns false if another one holds the lock.
	LockKey(tx sqldb.TxConn[Tx], id driver.RecordID) bool
}

// ErrKeyLocked: another transaction has claimed the key.
var ErrKeyLocked = errors.New("sqlstore: key locked")
