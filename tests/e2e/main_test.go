package e2e

import (
	"fmt"
	"os"
	"testing"
)

// TestMain runs the tests, or, in a process that a test started, the worker or the upstream.
func TestMain(m *testing.M) {
	if spec := os.Getenv(workerEnv); spec != "" {
		if err := runWorker(spec); err != nil {
			fmt.Fprintln(os.Stderr, "worker:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	if spec := os.Getenv(messageWorkerEnv); spec != "" {
		if err := runMessageWorker(spec); err != nil {
			fmt.Fprintln(os.Stderr, "message worker:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	if spec := os.Getenv(upstreamEnv); spec != "" {
		fmt.Fprintln(os.Stderr, "upstream:", runUpstream(spec))
		os.Exit(1)
	}
	code := m.Run()
	if programDir != "" {
		_ = os.RemoveAll(programDir) //nolint:errcheck // it is in the folder for temporary files
	}
	os.Exit(code)
}
