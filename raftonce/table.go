package raftonce

import (
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"github.com/everonce/everonce/session"
)

// StateMachine is a state machine with sessions: an [FSM], or a [DiskFSM].
type StateMachine interface {
	raft.FSM
	Sessions() int
	Lease() time.Duration
	terms() terms
	seen() int64
	head(term uint64, stamp int64) head
}

// table holds the sessions of a state machine.
type table struct {
	config        session.Config
	sum           uint32 // hash of config
	machine       *session.Machine
	now, sessions atomic.Int64 // the machine's, readable while it is busy
}

// configure sets up the table, without sessions.
func (t *table) configure(config session.Config) error {
	machine, err := session.New(config)
	if err != nil {
		return err
	}
	t.config = machine.Config() // with defaults
	t.sum = sumOf(t.config)
	t.use(machine)
	return nil
}

// restore reads a machine, which must have this Config.
func restore(from io.Reader, config session.Config) (*session.Machine, error) {
	machine, err := session.Restore(from, config.Name)
	if err == nil && machine.Config() != config {
		err = fmt.Errorf("%w: %+v; this node has %+v", ErrOtherConfig, machine.Config(), config)
	}
	return machine, err
}

// use replaces the table's machine.
func (t *table) use(machine *session.Machine) {
	t.machine = machine
	t.publish()
}

// publish updates the values that are read without waiting for the machine.
func (t *table) publish() {
	t.now.Store(t.machine.Now())
	t.sessions.Store(int64(t.machine.Len()))
}

// read parses an entry of the log. An entry of a newer version ends the process, because nodes of that version execute
// it. A stamp whose term differs from the entry's comes from a node that did not lead yet, whose clock had run while
// there was no leader: it is ignored.
//
// The Config of the cluster is the Config of its first entry, or of the snapshot. A node with another one ends at that
// entry, and all nodes refuse the entries that it appends before. The time is above 0 after the first entry.
func (t *table) read(log *raft.Log) (stamp int64, c session.Command, err error) {
	h, c, err := parseEntry(log.Data)
	if errors.Is(err, session.ErrNewer) {
		panic(fmt.Errorf("raftonce: entry %d was written by a newer version (upgrade this node): %w", log.Index, err))
	}
	switch now := t.machine.Now(); {
	case err != nil:
		return 0, c, err
	case h.config != t.sum && now == 0:
		panic(fmt.Errorf("%w: in entry %d (give all nodes the same Config)", ErrOtherConfig, log.Index))
	case h.config != t.sum:
		return 0, c, fmt.Errorf("%w: the node that appended the entry", ErrOtherConfig)
	case h.term != log.Term:
		h.stamp = now
	}
	return max(h.stamp, 1), c, nil
}

// Sessions returns the number of sessions.
func (t *table) Sessions() int { return int(t.sessions.Load()) }

// Lease is how long a session lives after its last command.
func (t *table) Lease() time.Duration { return t.config.Lease }

func (t *table) terms() terms { return terms{t.config.Lease, t.config.Window} }

func (t *table) head(term uint64, stamp int64) head {
	return head{term: term, stamp: stamp, config: t.sum}
}

// seen returns the highest stamp that was applied.
func (t *table) seen() int64 { return t.now.Load() }
