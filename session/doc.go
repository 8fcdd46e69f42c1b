// Package session is the state machine of client sessions: requests take effect once, without a record for each.
//
// A client registers, and numbers its requests 1, 2, 3, … With each it sends the mark up to which it has every answer. The
// machine keeps the answers above that mark, and nothing else: a request that arrives again is answered from them. So the
// state grows with the number of clients and not with that of requests, and it has a known end: below the mark nothing
// runs.
//
// A [Machine] is pure: it has no clock, does no I/O, and its state is a function of the commands that it was given, in
// their order. Replicas that apply the same log agree on every answer, and their snapshots are equal to the byte. Who calls
// it says what time it is (the leader's stamp in a log, the database's clock in a transaction), executes what
// [Answer].Execute asks for, and makes effect and state durable in one step: a log entry, or a commit.
//
// # What it promises
//
// A request that was executed is never executed again, as long as its session lives. A request of a session that has ended,
// or that was never there, is refused ([ErrSessionExpired], [ErrSessionUnknown]) and never executed: whether an earlier
// copy was is then unknown to the client, which must not send it under a new session.
//
// The rules follow the client sessions of the Raft dissertation (Ongaro, §6.3) and RIFL (Lee et al., SOSP 2015).
package session
