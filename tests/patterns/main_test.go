package patterns

import (
	"fmt"
	"os"
	"testing"

	"github.com/everonce/everonce/internal/testing/leaks"
)

// TestMain runs the tests, or, in a process that a test started, a relay and a worker, or a service with sessions.
func TestMain(m *testing.M) {
	if raw := os.Getenv(childEnv); raw != "" {
		if err := runChild(raw); err != nil {
			fmt.Fprintln(os.Stderr, "child:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	if raw := os.Getenv(serverEnv); raw != "" {
		if err := runServer(raw); err != nil {
			fmt.Fprintln(os.Stderr, "server:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	leaks.Main(m)
}
