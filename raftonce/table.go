package raftonce

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"github.com/everonce/everonce/session"
)

// StateMachine is one with sessions: an [FSM], or a [DiskFSM].
type StateMachine interface {
	raft.FSM
	Sessions() int
	Lease() time.Duration
	seen() int64
}

// table is the sessions of a state machine.
type table struct {
	machine              *session.Machine
	now, lease, sessions atomic.Int64 // of the machine, to be read while it is busy
}

// use puts another machine into the table.
func (t *table) use(machine *session.Machine) {
	t.machine = machine
	t.publish()
}

// publish tells those that do not wait for the machine.
func (t *table) publish() {
	t.now.Store(t.machine.Now())
	t.lease.Store(int64(t.machine.Config().Lease))
	t.sessions.Store(int64(t.machine.Len()))
}

// read reads an entry of the log. One of a newer version ends the process: nodes of that version execute it. A stamp of another term than the entry's is of a node that did not lead yet, whose clock
// had gone on while there was no leader: it says nothing.
func (t *table) read(log *raft.Log) (stamp int64, c session.Command, err error) {
	h, c, err := parseEntry(log.Data)
	if errors.Is(err, session.ErrNewer) {
		panic(fmt.Errorf("raftonce: entry %d is of a newer version: bring this node to that one: %w", log.Index, err))
	}
	if err == nil && h.term != log.Term {
		h.stamp = t.machine.Now()
	}
	return h.stamp, c, err
}

// Sessions returns how many sessions there are.
func (t *table) Sessions() int { return int(t.sessions.Load()) }

// Lease is how long a session lives after its last command.
func (t *table) Lease() time.Duration { return time.Duration(t.lease.Load()) }

// seen is the highest stamp that was applied.
func (t *table) seen() int64 { return t.now.Load() }
