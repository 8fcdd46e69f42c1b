// Package program builds and runs the examples as processes, for their tests. It builds without cgo, as the Dockerfile
// does: one build of what they import serves all tests.
package program

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// Build builds the main package in a folder, relative to the test's, and returns the program.
func Build(t *testing.T, dir string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "program")
	cmd := exec.CommandContext(t.Context(), "go", "build", "-o", file, ".") //nolint:gosec // a test runs what it chose
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "CGO_ENABLED=0")
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go build %s: %v\n%s", dir, err, text)
	}
	return file
}

// Run runs a program in a folder to its end, and returns what it wrote to standard output.
func Run(ctx context.Context, t *testing.T, dir, file string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(ctx, file, args...) //nolint:gosec // as above
	cmd.Dir = dir
	text, err := cmd.Output()
	if err != nil {
		stderr := ""
		if exit, ok := err.(*exec.ExitError); ok { //nolint:errorlint // Output returns it unwrapped
			stderr = string(exit.Stderr)
		}
		t.Fatalf("%s: %v\n%s", filepath.Base(file), err, stderr)
	}
	return string(text)
}

// Shell runs commands in a folder, with variables besides the environment's, stops at the first that
// fails, and returns what they wrote to standard output.
func Shell(t *testing.T, dir, commands string, env ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "bash", "-euo", "pipefail", "-c", commands) //nolint:gosec // as above
	cmd.Dir = dir
	cmd.Env = append(append(os.Environ(), "CGO_ENABLED=0"), env...)
	var out, log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &log
	if err := cmd.Run(); err != nil {
		t.Fatalf("%s\n%v\n%s%s", commands, err, &out, &log)
	}
	return out.String()
}
