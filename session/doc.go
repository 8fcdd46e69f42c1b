// Package session is a state machine of client sessions: requests take effect once, without a record for each.
//
// A client registers, and numbers its requests 1, 2, 3, … With each it sends the mark up to which it has every reply.
// The machine keeps only the results above that mark: a request that arrives again is answered from them. So the state
// grows with the number of clients, not with the number of requests, and it has a known end: no request below the mark
// runs.
//
// A [Machine] is pure: it has no clock, does no I/O, and its state is a function of its commands, in their order.
// Replicas that apply the same log agree on every reply, and their snapshots are equal byte for byte. The caller
// supplies the time (the leader's stamp in a log, the database's clock in a transaction), executes a request if
// [Reply].Execute is set, and makes effect and state durable in one step: a log entry, or a commit.
//
// # What it promises
//
// A request that was executed is never executed again, as long as its session lives. A request of a session that has
// ended or never existed is refused ([ErrSessionExpired], [ErrSessionUnknown]) and never executed: the client then does
// not know whether an earlier copy was, and must not send it under a new session.
//
// The rules follow the client sessions of the Raft dissertation (Ongaro, §6.3) and RIFL (Lee et al., SOSP 2015).
package session
