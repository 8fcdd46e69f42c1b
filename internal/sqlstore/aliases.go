package sqlstore

import "github.com/everonce/everonce/internal/sqldb"

type (
	Statement      = sqldb.Statement
	Call           = sqldb.Call
	Row            = sqldb.Row
	Conn           = sqldb.Conn
	TxConn[Tx any] = sqldb.TxConn[Tx]
	SQLQuerier     = sqldb.SQLQuerier
	ArgKind        = sqldb.ArgKind
	ErrorClass     = sqldb.ErrorClass
	ErrorInfo      = sqldb.ErrorInfo
)

const (
	ArgInt            = sqldb.ArgInt
	ArgText           = sqldb.ArgText
	ArgBytes          = sqldb.ArgBytes
	ClassOther        = sqldb.ClassOther
	ClassUnique       = sqldb.ClassUnique
	ClassRetry        = sqldb.ClassRetry
	ClassConstraint   = sqldb.ClassConstraint
	ClassMissingTable = sqldb.ClassMissingTable
	ClassFull         = sqldb.ClassFull
	ClassTooLarge     = sqldb.ClassTooLarge
	ClassReadOnly     = sqldb.ClassReadOnly
	ClassDenied       = sqldb.ClassDenied
	ClassCorrupt      = sqldb.ClassCorrupt
	ClassUnavailable  = sqldb.ClassUnavailable
)

var (
	ErrNothingWritten = sqldb.ErrNothingWritten
	ErrCommitLost     = sqldb.ErrCommitLost
	SendSQL           = sqldb.SendSQL
	SQLTxDone         = sqldb.SQLTxDone
)
