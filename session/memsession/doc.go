// Package memsession keeps client sessions in the memory of one process: for tests, and where effects are in that memory
// too.
//
// A [Host] applies commands to a session.Machine. It promises what that does, for as long as the process lives: a request
// takes effect once, if its work has no effect where it returns an error. Nothing undoes what such a work has done already.
// After a restart no session is known, and whether a request was executed before is unknown to its client.
//
// Time is the process's monotonic clock, which testing/synctest may set.
package memsession
