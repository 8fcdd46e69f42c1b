package session

import "context"

// Work is what a request has executed: what it does through tx becomes durable together with its result, or neither. A host
// may call it again, after all of an earlier call was undone. It must not end the transaction.
type Work[Tx any] func(ctx context.Context, tx Tx, payload []byte) (result []byte, err error)

// Host keeps sessions and executes their requests: in a database (session/sqlsession), or in memory (session/memsession). Tx
// is what the work of a request gets. A Host is safe for concurrent use.
//
// A host in a database undoes what a work did that returned an error. One in memory cannot: there a work must have had no
// effect when it returns one.
type Host[Tx any] interface {
	// Apply applies a command by the rules of a [Machine], with the host's own time. It believes what Command.Principal says. For a [Request] that is to be executed
	// it calls work, and keeps the result. What refuses the command is in the answer. The error is work's, or the host's, and
	// there is no answer then: nothing was done, or, with an error that is everonce.ErrOutcomeUnknown, nobody knows. The same
	// command again finds out. After an error or a panic of work the number is as it was.
	Apply(ctx context.Context, c *Command, work Work[Tx]) (Answer, error)
	// Config returns the Config of the sessions, with its defaults.
	Config() Config
}
