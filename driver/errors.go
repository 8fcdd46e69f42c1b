package driver

import "errors"

// What a store says, for errors.Is. Every failure of a store, these included, also is [ErrStore].
var (
	// ErrInvalidKey: the key cannot name an operation. Nothing ran.
	ErrInvalidKey = errors.New("everonce: invalid key")
	// ErrInvalidArgument: a call or a constructor was given something that cannot work. Nothing ran.
	ErrInvalidArgument = errors.New("everonce: invalid argument")
	// ErrLeaseLost: another attempt, a reconciler or a settlement has the record. What the record says is the answer.
	ErrLeaseLost = errors.New("everonce: lease lost")
	// ErrTxDoomed: the caller's transaction did not survive an error of the work. Roll it back.
	ErrTxDoomed = errors.New("everonce: transaction is doomed")
	// ErrTxTooLong: a transaction exceeded Options.TxTimeout, or the bound of its store. It was rolled back.
	ErrTxTooLong = errors.New("everonce: transaction took too long")
	// ErrOtherStore: a transactional step was given the receiver of another store, or DoTx a transaction on another database,
	// where the store can tell.
	ErrOtherStore = errors.New("everonce: transaction belongs to another store")
	// ErrAttemptEnded: a step or a repeated claim came after the attempt had ended. It is the cause of the work's context then.
	ErrAttemptEnded = errors.New("everonce: attempt has ended")
	// ErrStore: the store failed or cannot be reached. It never means "not a duplicate".
	ErrStore = errors.New("everonce: store failed")
	// ErrSchema: the store's tables are missing or of another version. The text says what to run.
	ErrSchema = errors.New("everonce: store schema")
	// ErrNewerRecord: the record was written by a newer version of everonce. Upgrade this process.
	ErrNewerRecord = errors.New("everonce: record written by a newer version")
	// ErrCorruptRecord: the record cannot be read, or no version has written it so.
	ErrCorruptRecord = errors.New("everonce: corrupt record")
	// ErrStoreFull: the store has no room for another record.
	ErrStoreFull = errors.New("everonce: store full")
	// ErrTooLarge: the store refuses a value because of its size. The engine elides the value.
	ErrTooLarge = errors.New("everonce: value too large for the store")
	// ErrIdentity: the store was set up with another identity secret.
	ErrIdentity = errors.New("everonce: identity secret does not match the store's")
	// ErrConflict: a transaction could not complete its key, because another one had it first.
	ErrConflict = errors.New("everonce: key taken by another transaction")
)
