package raftonce

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hashicorp/raft"

	"github.com/everonce/everonce/session"
)

// NodeOptions are the options of [NewNode].
type NodeOptions struct {
	// Address returns the address at which clients reach a node. By default it is the node's address in raft.
	Address func(id raft.ServerID, address raft.ServerAddress) string
	// MaxPayload bounds the payload of a command, in bytes. Default 512 KiB: raft needs small entries, because a leader
	// that takes longer to send one than raft's timeouts loses its leadership. All nodes should have the same value.
	MaxPayload int
}

// Node accepts commands from clients on a node of the cluster.
type Node struct {
	raft     *raft.Raft
	fsm      StateMachine
	address  func(raft.ServerID, raft.ServerAddress) string
	largest  int // largest payload
	clock    clock
	renewals renewals
	reads    reads
}

// NewNode returns the node of a raft that applies to fsm. It panics if raft.Config.NoSnapshotRestoreOnStart kept a
// snapshot of raft from an [FSM]: its sessions would be missing.
func NewNode(r *raft.Raft, fsm StateMachine, opts *NodeOptions) *Node {
	index := r.Stats()["last_snapshot_index"]
	if f, inMemory := fsm.(*FSM); inMemory && index != "0" && !f.snapped.Load() {
		panic("raftonce: raft has a snapshot up to entry " + index + ", and has not restored its sessions: NoSnapshotRestoreOnStart is for OpenDisk only")
	}
	n := &Node{raft: r, fsm: fsm, address: func(_ raft.ServerID, address raft.ServerAddress) string { return string(address) }}
	if opts != nil && opts.Address != nil {
		n.address = opts.Address
	}
	if n.largest = 512 << 10; opts != nil && opts.MaxPayload > 0 {
		n.largest = opts.MaxPayload
	}
	return n
}

// Apply stamps a command, appends it to the log, and waits until it is applied. timeout is how long it may wait to be
// appended, 0 for ever. The error wraps [ErrNotLeader] (a [*NotLeaderError]) or [ErrRetry], or [session.ErrEncoding]
// for a command over its limits, [ErrTooLarge] or [ErrOtherConfig]. The reply says whether the command was refused;
// [Result] returns the request's result.
func (n *Node) Apply(c *session.Command, timeout time.Duration) (session.Reply, error) {
	if len(c.Payload) > n.largest {
		return session.Reply{}, fmt.Errorf("%w: %d bytes; NodeOptions.MaxPayload allows %d", ErrTooLarge, len(c.Payload), n.largest)
	}
	term := n.raft.CurrentTerm()
	entry, err := newEntry(n.fsm.head(term, n.clock.stamp(term, n.fsm.seen)), c)
	if err != nil {
		return session.Reply{}, err
	}
	if c.Op > lastOp { // else every node would take it for a command of a newer version
		return session.Reply{Err: session.ErrInvalid}, nil
	}
	future := n.raft.Apply(entry, timeout)
	if err := future.Error(); err != nil {
		return session.Reply{}, n.wrapError(err)
	}
	switch response := future.Response().(type) {
	case session.Reply:
		return response, nil
	case error:
		return session.Reply{}, response
	}
	return session.Reply{}, fmt.Errorf("raftonce: the raft's state machine is not from NewFSM or OpenDisk: it replies with a %T", future.Response())
}

// wrapError translates an error of raft. Only raft.ErrNotLeader proves that the command is not in the log.
func (n *Node) wrapError(err error) error {
	if errors.Is(err, raft.ErrNotLeader) {
		leader := ""
		if address, id := n.raft.LeaderWithID(); address != "" {
			leader = n.address(id, address)
		}
		return &NotLeaderError{Leader: leader}
	}
	return fmt.Errorf("%w: %w", ErrRetry, err)
}

// Handle applies a command of a [Client], and returns the bytes that the client's transport must return. principal is
// the authenticated sender (session.Config.PerPrincipal); it replaces the command's Principal.
func (n *Node) Handle(principal string, command []byte, timeout time.Duration) []byte {
	c, err := session.ParseCommand(command)
	if err != nil {
		return answered(session.Reply{Err: session.ErrInvalid}, n.fsm.terms())
	}
	c.Principal = principal
	var answer session.Reply
	if c.Op == session.KeepAlive {
		answer, err = n.renew(c.Beats, timeout)
	} else {
		answer, err = n.Apply(&c, timeout)
	}
	var elsewhere *NotLeaderError
	switch {
	case errors.As(err, &elsewhere):
		return notLeader(elsewhere.Leader)
	case errors.Is(err, ErrTooLarge):
		return []byte{replyVersion, kindTooLarge}
	case errors.Is(err, session.ErrEncoding):
		return answered(session.Reply{Err: session.ErrInvalid}, n.fsm.terms())
	case err != nil:
		return tryAgain(err)
	}
	return answered(answer, n.fsm.terms())
}

// Tick appends the time, so that sessions expire while no client sends. Its errors are the same as Apply's.
func (n *Node) Tick(timeout time.Duration) error {
	_, err := n.Apply(&session.Command{Op: session.Tick}, timeout)
	return err
}

// Run appends the time when needed, until ctx ends, and then returns nil. It does so if this node is the leader, there
// are sessions, and no entry was stamped for a tenth of the lease. Every node must run it.
func (n *Node) Run(ctx context.Context) error {
	every := max(n.fsm.Lease()/10, time.Millisecond)
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		if n.raft.State() != raft.Leader || n.fsm.Sessions() == 0 || n.clock.stamp(n.raft.CurrentTerm(), n.fsm.seen)-n.fsm.seen() < int64(every) {
			continue
		}
		if n.Tick(every) != nil {
			continue // a later tick, of this or the next leader, appends the time
		}
	}
}

// Read waits until everything that was answered before the call is applied here: a read of the state machine after it
// is linearizable. It costs an entry of the log, which simultaneous calls share. timeout is how long it may take, 0 for
// ever. The errors wrap [ErrNotLeader] or [ErrRetry]; nothing has happened then.
//
// Asking the other nodes whether this one is still the leader, by raft.VerifyLeader, would cost no entry, but would not
// be certain: a leader that was suspended takes earlier heartbeat responses for current ones.
func (n *Node) Read(timeout time.Duration) error {
	if err := n.reads.wait(timeout, func() error { return n.raft.Barrier(timeout).Error() }); err != nil {
		return n.wrapError(err)
	}
	return nil
}
