package driver

import "errors"

// Refusals, for errors.Is: the answers of a store that is in order. They do not wrap [ErrStore].
var (
	// ErrInvalidKey: the key cannot name an operation. Nothing ran.
	ErrInvalidKey = errors.New("everonce: invalid key")
	// ErrInvalidArgument: an argument of a call or constructor is not valid. Nothing ran.
	ErrInvalidArgument = errors.New("everonce: invalid argument")
	// ErrLeaseLost: another attempt, a reconciler or a settlement holds the record, which has the answer.
	ErrLeaseLost = errors.New("everonce: lease lost")
	// ErrAttemptEnded: the attempt had ended before a step or a repeated claim. It is also the cause of the work's
	// context.
	ErrAttemptEnded = errors.New("everonce: attempt has ended")
	// ErrConflict: a transaction could not complete its key, because another one claimed or completed it first.
	ErrConflict = errors.New("everonce: key taken by another transaction")
	// ErrOtherStore: the receiver of a transactional step has another store, or the transaction of DoTx is on another
	// database (if the store can detect it).
	ErrOtherStore = errors.New("everonce: transaction belongs to another store")
	// ErrTxDoomed: the caller's transaction is unusable after an error of the work. Roll it back.
	ErrTxDoomed = errors.New("everonce: transaction is doomed")
	// ErrTxTooLong: a transaction exceeded Options.TxTimeout or the limit of its store. It was rolled back.
	ErrTxTooLong = errors.New("everonce: transaction took too long")
)

// ErrOutcomeUnknown: it is unknown whether an effect happened. No store returns it. It is here for clients, which
// do not link the engine.
var ErrOutcomeUnknown = errors.New("everonce: outcome unknown")

// Failures, for errors.Is. A store may return one alone, or any other error: the engine adds [ErrStore] to every error
// that is not a refusal.
var (
	// ErrStore: the store failed or cannot be reached. It never means "not a duplicate".
	ErrStore = errors.New("everonce: store failed")
	// ErrSchema: the store's tables are missing or of another version. The error text says what to run.
	ErrSchema = errors.New("everonce: store schema")
	// ErrNewerRecord: the record was written by a newer version of everonce. Upgrade this process.
	ErrNewerRecord = errors.New("everonce: record written by a newer version")
	// ErrCorruptRecord: the record cannot be read, or has contents that no version writes.
	ErrCorruptRecord = errors.New("everonce: corrupt record")
	// ErrStoreFull: the store has no room for another record.
	ErrStoreFull = errors.New("everonce: store full")
	// ErrTooLarge: a value is too large for the store. The engine elides it.
	ErrTooLarge = errors.New("everonce: value too large for the store")
	// ErrIdentity: the store was set up with another identity secret.
	ErrIdentity = errors.New("everonce: identity secret does not match the store's")
)
