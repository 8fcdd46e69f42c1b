// Package sketches holds one compiling sketch of each coming user of the core: inbox, outbox, saga, client sessions, Raft. They were written before the core's
// shape was settled, and stay so that a change of the core that bends one of them does not compile.
//
// The control flow is real, and tested on store/memstore; what surrounds it (headers, brokers, SQL text, logs) is cut to the least.
// docs/design.md tells what each asked of the core. Nothing imports this package: when a sketch becomes
// a package of its own, its file goes.
package sketches
