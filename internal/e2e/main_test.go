package e2e

import (
	"fmt"
	"os"
	"testing"
)

// TestMain runs the tests, or, in a process that a test started, the worker.
func TestMain(m *testing.M) {
	if spec := os.Getenv(workerEnv); spec != "" {
		if err := runWorker(spec); err != nil {
			fmt.Fprintln(os.Stderr, "worker:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}
