// Package raftonce makes each command of a Raft state machine take effect once.
//
// Package raft of HashiCorp replicates a log and has no sessions: a client whose leader was lost cannot know whether
// its command is in the log, and sends it twice, or not at all. Here the log's entries are commands of package
// [session], and each node's state machine holds the table of sessions. A command that arrives again is answered from
// that table, whichever node is the leader by then.
//
//	fsm, err := raftonce.NewFSM(bank, session.Config{Name: "bank", Lease: time.Minute}, nil)
//	r, err := raft.NewRaft(config, fsm, logs, stable, snapshots, transport)
//	node := raftonce.NewNode(r, fsm, nil)
//	go node.Run(ctx) // on every node
//
// The application provides the RPC: its server passes requests to [Node.Handle], and its [Client] gets a [Transport].
//
// # What it promises
//
// The mode is transactional: the effect of a request and its record are one entry of the log. A request that
// [Client.Do] sends takes effect at most once, however often it is sent, over changes of the leader, crashes, and
// snapshots; and exactly once if Do returns without an error, or with a [*FailedError], [ErrElided] or [ErrNotEncoded].
// Otherwise Do returns [everonce.ErrOutcomeUnknown]: the request took effect, or a copy that is on its way may still
// take effect, once, or it never will. The client soon makes the cluster refuse such copies; [Client.Do] says when, and
// [Client.Close] makes it certain.
//
// A session ends when the cluster has received nothing from it for its lease, at the same entry on every node. The
// client renews it at a third of the lease. Requests of a session that has ended are refused, never executed, and never
// sent under another one.
//
// # What it requires
//
// The state machine is deterministic, its errors too: an error is the result of its request, is kept, and is replayed.
// It replies with bytes, or [Options.Encode] makes bytes of the reply. All its entries come through [Node.Apply] or
// [Node.Handle]; other entries are answered with [ErrEntry] and change nothing. So a log and snapshots from before
// raftonce cannot be used.
//
// A node that receives an entry of a newer version ends, with a panic, because the nodes of that version execute it:
// upgrade all nodes, one soon after the other.
//
// All nodes have the same [session.Config], which cannot be changed during the life of the cluster. A node with another
// one refuses the snapshot, or ends with a panic at the first entry of the log, and the others refuse its entries
// ([ErrOtherConfig]).
//
// The numbers and nonces of clients are in the log and the snapshots: anyone who can read those can use the sessions.
//
// # Restarts, and state machines on disk
//
// A node that restarts gets its state and its sessions from raft's newest snapshot and the log after it: leave
// raft.Config.NoSnapshotRestoreOnStart false for an [FSM]. A [DiskFSM] has state and sessions in a bbolt database, each
// batch of entries in one commit, and continues from there:
//
//	fsm, err := raftonce.OpenDisk(dir, machine, session.Config{Name: "bank", Lease: time.Minute}, nil)
//	err = fsm.Resume(config, logs, snapshots)
//	r, err := raft.NewRaft(config, fsm, logs, stable, snapshots, transport)
//
// All nodes of a cluster must have the same kind of state machine: neither reads the other's snapshots.
//
// # Time
//
// The leader stamps each entry. It continues from the highest stamp in the log with its monotonic clock, so that a
// wrong wall clock ends no session, and time stands still while there is no leader. A stamp from before its node was
// the leader is ignored. [Node.Run] appends the time while no client sends.
package raftonce
