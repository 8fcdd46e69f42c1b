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
	// Address says where clients reach a node. By default that is its address in raft.
	Address func(id raft.ServerID, address raft.ServerAddress) string
	// MaxPayload bounds the payload of a command, in bytes. Default 512 KiB: raft asks for small entries, since one that
	// takes longer to send than its timeouts costs the leader its place. All nodes should have the same.
	MaxPayload int
}

// Node takes commands of clients on a node of the cluster.
type Node struct {
	raft    *raft.Raft
	fsm     StateMachine
	address func(raft.ServerID, raft.ServerAddress) string
	largest int // payload
	clock   clock
	beats   beats
	reads   reads
}

// NewNode returns the node of a raft that applies to fsm. It panics if raft has a snapshot that an [FSM] was not given, by
// raft.Config.NoSnapshotRestoreOnStart: its sessions would be missing.
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

// Apply stamps a command, appends it to the log, and waits until it is applied; timeout is how long it may wait to be
// appended, 0 for ever. The error wraps [ErrNotLeader] (a [*NotLeaderError]) or [ErrRetry], or [session.ErrEncoding] for a
// command over its limits, [ErrTooLarge] or [ErrOtherConfig]. Whether the command is refused, and the request's result, say the answer and [Result].
func (n *Node) Apply(c *session.Command, timeout time.Duration) (session.Answer, error) {
	if len(c.Payload) > n.largest {
		return session.Answer{}, fmt.Errorf("%w: %d bytes, and NodeOptions.MaxPayload is %d", ErrTooLarge, len(c.Payload), n.largest)
	}
	term := n.raft.CurrentTerm()
	entry, err := newEntry(n.fsm.head(term, n.clock.stamp(term, n.fsm.seen)), c)
	if err != nil {
		return session.Answer{}, err
	}
	if c.Op > lastOp { // else every node would take it for a newer version's
		return session.Answer{Err: session.ErrInvalid}, nil
	}
	future := n.raft.Apply(entry, timeout)
	if err := future.Error(); err != nil {
		return session.Answer{}, n.refused(err)
	}
	switch response := future.Response().(type) {
	case session.Answer:
		return response, nil
	case error:
		return session.Answer{}, response
	}
	return session.Answer{}, fmt.Errorf("raftonce: this raft does not apply to an FSM of NewFSM: it answers a %T", future.Response())
}

// refused says what an error of raft means. Only of raft.ErrNotLeader it is known that the command is not in the log.
func (n *Node) refused(err error) error {
	if errors.Is(err, raft.ErrNotLeader) {
		leader := ""
		if address, id := n.raft.LeaderWithID(); address != "" {
			leader = n.address(id, address)
		}
		return &NotLeaderError{Leader: leader}
	}
	return fmt.Errorf("%w: %w", ErrRetry, err)
}

// Handle applies a command of a [Client], and returns what the client's transport is to return. The principal is who sends
// it, as far as the application knows (session.Config.PerPrincipal); it replaces what the command says of that.
func (n *Node) Handle(principal string, command []byte, timeout time.Duration) []byte {
	c, err := session.ParseCommand(command)
	if err != nil {
		return answered(session.Answer{Err: session.ErrInvalid}, n.fsm.terms())
	}
	c.Principal = principal
	var answer session.Answer
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
		return answered(session.Answer{Err: session.ErrInvalid}, n.fsm.terms())
	case err != nil:
		return tryAgain(err)
	}
	return answered(answer, n.fsm.terms())
}

// Tick tells the time, so that sessions expire though nobody sends anything. The errors are those of Apply.
func (n *Node) Tick(timeout time.Duration) error {
	_, err := n.Apply(&session.Command{Op: session.Tick}, timeout)
	return err
}

// Run ticks until ctx ends: where this node is the leader, there are sessions, and the log has not told the time for a
// tenth of the lease. Every node runs it.
func (n *Node) Run(ctx context.Context) {
	every := max(n.fsm.Lease()/10, time.Millisecond)
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		if n.raft.State() != raft.Leader || n.fsm.Sessions() == 0 || n.clock.stamp(n.raft.CurrentTerm(), n.fsm.seen)-n.fsm.seen() < int64(every) {
			continue
		}
		if n.Tick(every) != nil {
			continue // the next one, or the next leader's, tells the time
		}
	}
}

// Read waits until everything that was answered before the call is applied here: who reads the state machine then reads
// linearizable. It costs an entry of the log, which those who call at the same time share; timeout is how long it may take,
// 0 for ever. The errors wrap [ErrNotLeader] or [ErrRetry]; nothing has happened then.
//
// To ask the other nodes whether this one is the leader still, by raft.VerifyLeader, would cost no entry, but not be
// certain: a leader that stood still takes answers to heartbeats of before for answers of now.
func (n *Node) Read(timeout time.Duration) error {
	if err := n.reads.wait(timeout, func() error { return n.raft.Barrier(timeout).Error() }); err != nil {
		return n.refused(err)
	}
	return nil
}
