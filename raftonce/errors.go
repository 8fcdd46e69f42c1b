package raftonce

import "errors"

var (
	// ErrRetry: it is unknown whether the command is, or will be, applied. Send it again with the same number: it takes
	// effect once. The cause (raft.ErrLeadershipLost and others) is wrapped too.
	ErrRetry = errors.New("raftonce: the command may or may not be applied (send it again with the same number)")
	// ErrNotLeader: this node has not accepted the command, which must be sent to the leader. See [NotLeaderError].
	ErrNotLeader = errors.New("raftonce: not the leader")
	// ErrTooLarge: the payload is larger than NodeOptions.MaxPayload. Nothing was appended to the log.
	ErrTooLarge = errors.New("raftonce: the payload is too large")
	// ErrEntry: an entry of the log is not a command of a session. It has changed nothing.
	ErrEntry = errors.New("raftonce: the entry is not a command of a session (append with Node.Apply only)")
	// ErrOtherConfig: a snapshot, a state on disk or an entry of the log comes from nodes with another [session.Config].
	ErrOtherConfig = errors.New("raftonce: another Config than this node's")
	// ErrSnapshot: a snapshot does not begin with sessions.
	ErrSnapshot = errors.New("raftonce: not a snapshot with sessions")
	// ErrAhead: the state on disk has entries that are not in the log. The log was lost, or belongs to another node. If
	// that log is the right one, remove the state's folder: raft restores the state from its snapshot and log.
	ErrAhead = errors.New("raftonce: the state on disk is ahead of the log")
	// ErrElided: the request was executed, and its result was too large to be kept (session.Config.MaxResult).
	ErrElided = errors.New("raftonce: the request was executed, and its result was not kept")
	// ErrNotEncoded: the request was executed, and the state machine's reply could not be encoded (Options.Encode).
	ErrNotEncoded = errors.New("raftonce: the request was executed, and its reply could not be encoded")
	// ErrClosed: the client was closed.
	ErrClosed = errors.New("raftonce: the client is closed")
)

// NotLeaderError is an [ErrNotLeader] with the address of the leader.
type NotLeaderError struct {
	Leader string // its address, or "" if unknown
}

func (e *NotLeaderError) Error() string {
	if e.Leader == "" {
		return ErrNotLeader.Error() + " (the leader is unknown: try again)"
	}
	return ErrNotLeader.Error() + " (send it to " + e.Leader + ")"
}

func (e *NotLeaderError) Unwrap() error { return ErrNotLeader }

// FailedError is the error with which the state machine replied to a request. It is the request's result: a repeated
// request gets the same one.
type FailedError struct{ Message string }

func (e *FailedError) Error() string { return e.Message }
