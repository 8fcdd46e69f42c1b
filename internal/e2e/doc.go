// Package e2e holds the tests that need real processes and real connections: they are killed with SIGKILL in the middle
// of their work, and cut in the middle of a request, and the ledgers of their effects are audited. It has only tests.
package e2e
