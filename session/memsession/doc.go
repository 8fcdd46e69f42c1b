// Package memsession keeps client sessions in the memory of one process: for tests, and for effects in the same memory.
//
// A [Host] applies commands to a session.Machine. Its promise holds as long as the process lives: a request takes
// effect once, if its work has no effect when it returns an error. The host cannot undo the changes of such a work.
// After a restart no session is known, and whether a request was executed before is unknown to its client.
//
// Time is the process's monotonic clock, which testing/synctest may set.
package memsession
