// Package sketches holds a compiling sketch of each coming user of the core: client sessions, Raft. A change of the
// core that bends one of them does not compile.
//
// The control flow is real, and tested on store/memstore; what surrounds it (headers, SQL text, logs) is cut to the
// least. docs/design.md says what each asked of the core. Nothing imports this package: a sketch that becomes a package
// is removed here.
package sketches
