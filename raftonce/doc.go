// Package raftonce has commands of a Raft state machine take effect once.
//
// Package raft of HashiCorp replicates a log and has no sessions: a client whose leader was lost cannot know whether its
// command is in the log, and sends it twice, or not at all. Here the log's entries are commands of package [session], and
// each node's state machine has the table of sessions in it. What comes again is answered from there, whichever node is the
// leader by then.
//
//	fsm, err := raftonce.NewFSM(bank, session.Config{Name: "bank", Lease: time.Minute}, nil)
//	r, err := raft.NewRaft(config, fsm, logs, stable, snapshots, transport)
//	node := raftonce.NewNode(r, fsm, nil)
//	go node.Run(ctx) // on every node
//
// The application brings its RPC: the server gives what it receives to [Node.Handle], and a [Client] is given a [Transport].
//
// # What it promises
//
// The mode is transactional: the effect of a request and its record are one entry of the log. A request that [Client.Do]
// sends takes effect at most once, however often it is sent, over changes of the leader, crashes, and snapshots; and
// exactly once if Do returns without an error, or with a [*FailedError], [ErrElided] or [ErrNotEncoded]. Otherwise Do says with
// [everonce.ErrOutcomeUnknown] that nobody knows: it took effect, or a copy that is on its way may let it, once, or it never
// does. The client has the cluster refuse such copies soon; [Client.Do] says when, and [Client.Close] makes it certain.
//
// A session ends when nothing was heard of it for its lease, at the same entry on every node. The client renews it at a
// third of the lease. Requests of a session that has ended are refused, never executed, and never sent under another one.
//
// # What it asks for
//
// The state machine is deterministic, its errors too: an error is the result of its request, is kept, and is replayed.
// It answers bytes, or [Options.Encode] makes bytes of the answer. All its entries come through [Node.Apply] or
// [Node.Handle]; others are answered with [ErrEntry] and change nothing. So a log and snapshots of before raftonce
// cannot be used.
//
// A node that is given an entry of a newer version ends, with a panic, since the nodes of that version execute it: bring all
// nodes to a new version, one soon after the other.
//
// All nodes have the same [session.Config], for as long as the cluster lives: it cannot be changed. A node with another one
// refuses the snapshot, or ends with a panic at the first entry of the log, and the others refuse its entries
// ([ErrOtherConfig]).
//
// The numbers and nonces of clients are in the log and the snapshots: who can read those can use the sessions.
//
// # Restarts, and state machines on disk
//
// A node that starts again gets its state from raft's newest snapshot and the log behind it, and the sessions with it: leave
// raft.Config.NoSnapshotRestoreOnStart false for an [FSM]. A [DiskFSM] has state and sessions in a bbolt database, each batch of entries in one commit, and goes on from there:
//
//	fsm, err := raftonce.OpenDisk(dir, machine, session.Config{Name: "bank", Lease: time.Minute}, nil)
//	err = fsm.Resume(config, logs, snapshots)
//	r, err := raft.NewRaft(config, fsm, logs, stable, snapshots, transport)
//
// All nodes of a cluster are of the same kind: their snapshots are not read by the other.
//
// # Time
//
// The leader stamps each entry. It goes on from the highest stamp in the log with its monotonic clock, so that a wrong wall
// clock ends no session, and time stands still while there is no leader. A stamp from before its node was the leader is ignored. [Node.Run]
// tells the time where nobody sends.
package raftonce
