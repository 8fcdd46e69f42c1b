package sqlstore

import (
	"slices"

	"github.com/everonce/everonce/internal/sqldb"
)

// Statements are the texts of the engine. Below, $n is the n-th argument, of [Dialect.Placeholder]. If the
// dialect has a Clock, each statement marked (now) has the time as one more argument, the last.
//
// "The record" in an answer is [RecordColumns], each NULL if there is no record. Times and durations are in
// microseconds; a time or duration that may be "never" or "none" is then NULL. A statement that locks the key
// ([Dialect.TryLock]) never waits for another transaction of the same key.
//
// If a transition needs more than these (a record is read, decided and written back), the write is Swap: it is
// conditional on the revision that was read, which grows with every write.
type Statements struct {
	// Claim inserts a claimed record unless there is one, and returns one row: the time, whether the key could be
	// locked, whether it was inserted (0 or 1 each), and the record before the insert. (now) If Dialect.OneStatement is
	// not set, or for MySQL, it is a bare INSERT, and only the number of affected rows is used; Read follows. For MySQL
	// it returns the time if it has inserted.
	//  $1 id, $2 scope, $3 name, $4 nonce, $5 owner, $6 lease, $7 fp_alg, $8 fp_sum, $9 format,
	//  $10 total lifetime or NULL, $11 time until due to be purged or NULL
	Claim *sqldb.Statement
	// Read returns one row as Claim does, with no lock taken (1) and nothing inserted (0). (now)
	//  $1 id
	Read *sqldb.Statement
	// Brief returns the time and [BriefColumns] of the record, or no row if it does not exist. It is nil if the caller
	// knows the time.
	//  $1 id
	Brief *sqldb.Statement
	// Probe returns a row if there is a record. It is nil if it would not be much cheaper than Read.
	//  $1 id
	Probe *sqldb.Statement
	// ReadLocked is Read that also locks the key for the rest of the transaction, if it can (1, or 0). (now)
	//  $1 id
	ReadLocked *sqldb.Statement
	// ReadBusy is Read in a transaction that could not lock the key. It does not wait where a read locks, as at
	// SERIALIZABLE on MariaDB: then it is Busy. It is nil if there is no Lock. (now)
	//  $1 id
	ReadBusy *sqldb.Statement
	// ReadSteps returns [StepColumns] of each step, in their order.
	//  $1 id
	ReadSteps *sqldb.Statement
	// Swap writes a whole record over the revision that was read, if it is unchanged and the key could be locked. If
	// the arguments from $3 on say that there are no steps, it removes them. It affects one row or none.
	//  $1 id, $2 revision; $3… are [SwapColumns]
	// If DropSteps is not nil, it follows where it is needed.
	Swap *sqldb.Statement
	// Insert writes a whole record unless there is one.
	//  $1 id, $2 scope, $3 name; $4… are [SwapColumns]
	Insert *sqldb.Statement
	// DropSteps removes the steps of a record. It is nil if Swap does.
	//  $1 id
	DropSteps *sqldb.Statement

	// Complete, Release and Renew change the record if the attempt holds it. They affect one row or none. (now)
	//  $1 id, $2 token, $3 nonce
	//  Complete: $4 kind, $5 codec, $6 data, $7 summary, $8 retention, $9 total lifetime
	//  Release: $4 state, $5 last_error, $6 unknown_step, $7 total lifetime or NULL
	//  Renew: $4 lease, $5 total lifetime, $6 time until due to be purged
	Complete *sqldb.Statement
	Release  *sqldb.Statement
	Renew    *sqldb.Statement
	// SaveStep changes the record if the attempt holds it and has room for the step, as Renew does if there is a lease.
	// It also writes the step, by name, unless an existing step stands. It returns one row or none, and ends in
	// RETURNING 1 or the like. (now) If PutStep is not nil, it only changes the record, and PutStep follows in the same
	// Send.
	//  $1 id, $2 token, $3 nonce, $4 lease or NULL, $5 total lifetime, $6 time until due to be purged, $7 step's name;
	//  OneStatement: $8 state, $9 attempt, $10 kind, $11 codec, $12 data, $13 summary
	SaveStep *sqldb.Statement
	// SaveStepOnce is SaveStep, but it affects no row unless the step is new, open, or not done by an earlier
	// attempt, and raises an error in another transaction. It is nil if PutStep is not.
	SaveStepOnce *sqldb.Statement
	// DropOrphans removes the steps of a record that has none by its own count.
	//  $1 id
	DropOrphans *sqldb.Statement
	// PutStep writes a step unless an existing step stands. (now) It is nil if SaveStep does.
	//  $1 id, $2 name, $3 state, $4 attempt, $5 kind, $6 codec, $7 data, $8 summary
	PutStep *sqldb.Statement
	// PutStepOnce is to PutStep what SaveStepOnce is to SaveStep. It is nil if PutStep is.
	PutStepOnce *sqldb.Statement
	// Finish writes a completed record, in a transaction, where no record exists, over one that is released or gone, or
	// over the revision $2. It affects one row or none, raises an error in another transaction, and ends in RETURNING
	// 1. (now)
	//  $1 id, $2 revision or 0, $3 scope, $4 name, $5 token or 0, $6 nonce, $7 owner, $8 fp_alg, $9 fp_sum, $10 format,
	//  $11 kind, $12 codec, $13 data, $14 summary, $15 retention, $16 total lifetime
	Finish *sqldb.Statement
	// FinishNew is Finish after a claim of the same transaction, or a look shortly before it, has found no record: it
	// may refuse to write over any. It takes the same arguments. It is nil if it would be no cheaper.
	FinishNew *sqldb.Statement
	// FinishOver is Finish where the transaction has found a record. It is nil if it would be no cheaper.
	FinishOver *sqldb.Statement
	// FinishLocked is FinishOver where the row is the one that Lock has inserted. It is nil if there is no Lock.
	FinishLocked *sqldb.Statement
	// Lock locks the key for the rest of the transaction with a record that is gone from its beginning, unless a record
	// exists. It returns the time if it has inserted that record, with revision 1; if not, ReadLocked follows. It is
	// nil if ReadLocked alone locks the key. (now)
	//  $1 id, $2 scope, $3 name, $4 nonce, $5 format
	Lock *sqldb.Statement

	// ReadLockedAll is ReadLocked for many keys. FinishAll is FinishNew for many that the same transaction has
	// claimed with ReadLockedAll, which locks them all. They are nil if single statements are to do it. ReadLockedAll
	// returns a row for each key that could not be locked or has a record, with the place of the key (from 1) in
	// place of whether it was inserted; if there is no such key, one row with the time. FinishAll returns a row for
	// each record that it wrote.
	//  ReadLockedAll: $1 ids, one after the other, $2 their number
	//  FinishAll: $1…$16 as for Finish, but $2 the number of records, $1 ids, $6 nonces and $9 fp_sums one after the
	//  other, and arrays of $4 name, $5 token, $13 data and $14 summary as PostgreSQL writes them
	ReadLockedAll *sqldb.Statement
	FinishAll     *sqldb.Statement

	// PurgeResults and PurgeRecords look at up to $1 records that are due, in the order of when, and then of their
	// addresses: those behind the time $2 and the address $3, which may be NULL for the last of that time. PurgeResults
	// drops the results of them that are over, with their steps, and PurgeRecords removes those that are gone. Both
	// affect the rows that they changed, and repeat their predicate in the write; they may return a row of each, with
	// the time at which it was due: a purge that left more is then gone on with from there. (now) If
	// Dialect.OneStatement is not set, PurgeSteps goes before PurgeResults, in the same transaction. If ChooseOver,
	// ChooseGone and ChooseScope are not nil, they return the IDs of the records that PurgeResults, PurgeRecords and
	// DeleteScope are to change, and how many steps each has; those then have an ID as their only argument, and
	// DropOrphans follows PurgeResults in the same Send. PurgePassed returns the time and the address of the record
	// behind the first $1 of these, or no row.
	PurgeResults *sqldb.Statement
	PurgeSteps   *sqldb.Statement
	ChooseOver   *sqldb.Statement
	ChooseGone   *sqldb.Statement
	ChooseScope  *sqldb.Statement
	PurgeRecords *sqldb.Statement
	PurgePassed  *sqldb.Statement
	// List returns rows of a time, locked (1), inserted (0) and a record, in the order of IDs, without result data.
	// (now)
	//  $1 after (exclusive), $2 lowest id, $3 highest id, $4 scope or "" for all, $5 scope and "/", $6 limit;
	//  List: $7 states to show, as the sum of 1 << state; 1 << 0 are those whose state this version cannot tell, and which match all
	// ListOpen is List of none that are completed: a database may have an index of those few. ListKey is List of keys
	// that have a hash or an ID; it may look at every record. ListName is ListKey of an ID in all scopes.
	//  ListKey: $8 the hash (bytes 9 to 16 of the id) or NULL for any, $9 the name or "" for any
	List     *sqldb.Statement
	ListOpen *sqldb.Statement
	ListKey  *sqldb.Statement
	ListName *sqldb.Statement
	// DeleteScope removes up to $6 records, in the order of IDs, and returns their IDs. It keeps live claims, a newer
	// version's records, and records that cannot be read well enough to exclude either. ScopeLeft returns one row: the
	// number of all records, locked by others or not, and how many of them DeleteScope may remove, are live claims, and
	// are a newer version's. (now)
	//  $1…$6 as for List
	DeleteScope *sqldb.Statement
	ScopeLeft   *sqldb.Statement
	// Remove removes a record.
	//  $1 id
	Remove *sqldb.Statement
	// Health returns one row: the time; the counts of live claims, of abandoned, released and completed records, and
	// of those that are damaged or a newer version's; and when the oldest of the abandoned was last written. (now)
	Health *sqldb.Statement

	// Meta are the statements of the table of settings.
	Meta sqldb.Meta
}

// All returns all statements that are not nil.
func (s *Statements) All() []*sqldb.Statement {
	all := []*sqldb.Statement{
		s.Claim, s.Read, s.Brief, s.Probe, s.ReadLocked, s.ReadBusy, s.ReadSteps, s.Swap, s.Insert, s.DropSteps,
		s.Complete, s.Release, s.Renew, s.SaveStep, s.SaveStepOnce, s.PutStep, s.PutStepOnce, s.Finish, s.FinishNew, s.FinishOver, s.FinishLocked, s.Lock, s.DropOrphans, s.ReadLockedAll, s.FinishAll,
		s.PurgeResults, s.PurgeSteps, s.ChooseOver, s.ChooseGone, s.ChooseScope, s.PurgeRecords, s.PurgePassed, s.List, s.ListOpen, s.ListKey, s.ListName, s.DeleteScope, s.ScopeLeft, s.Remove, s.Health,
		s.Meta.Create, s.Meta.Get, s.Meta.Put, s.Meta.Set,
	}
	return slices.DeleteFunc(all, func(st *sqldb.Statement) bool { return st == nil })
}
