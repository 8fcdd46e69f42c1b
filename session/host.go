package session

import "context"

// Work executes a request: its changes through tx become durable together with its result, or not at all. A host may
// call it again, after an earlier call was undone. It must not end the transaction.
type Work[Tx any] func(ctx context.Context, tx Tx, payload []byte) (result []byte, err error)

// Host keeps sessions and executes their requests: in a database (session/sqlsession), or in memory
// (session/memsession). Tx is the argument of a request's work. A Host is safe for concurrent use.
//
// A host in a database undoes the changes of a work that returned an error. A host in memory cannot: there a work must
// have no effect when it returns one.
type Host[Tx any] interface {
	// Apply applies a command by the rules of a [Machine], with the host's time. It does not verify Command.Principal. For
	// a [Request] that must be executed it calls work, and keeps the result. A refusal of the command is in the reply. The
	// error is work's, or the host's, and the reply is then empty: nothing was done, or, with an
	// everonce.ErrOutcomeUnknown, the outcome is unknown. Send the same command again to find out. After an error or a
	// panic of work the number is unused.
	Apply(ctx context.Context, c *Command, work Work[Tx]) (Reply, error)
	// Config returns the Config of the sessions, with its defaults.
	Config() Config
}
