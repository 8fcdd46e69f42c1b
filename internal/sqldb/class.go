package sqldb

// ErrorClass is the class of an error of the database.
type ErrorClass uint8

// The classes.
const (
	// ClassOther is the class of every other error.
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
	// ClassUnavailable is a database that cannot be reached, or a connection that broke. The statements that were sent
	// may or may not have been executed.
	ClassUnavailable
)

// ErrorInfo is the meaning of an error.
type ErrorInfo struct {
	Class ErrorClass
	// NotDone reports that the statement certainly had no effect.
	NotDone bool
}
