package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/everonce/everonce/examples/internal/docs"
	"github.com/everonce/everonce/examples/internal/program"
)

// From an empty folder beside a clone, the commands of docs/how-to/consume-from-rabbitmq.md lead to programs that
// build.
func TestHowToFromAnEmptyFolder(t *testing.T) {
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	begin := docs.Blocks(t, "how-to/consume-from-rabbitmq.md", "sh", "go mod init")
	if len(begin) != 1 {
		t.Fatalf("the page has %d blocks with go mod init, want one", len(begin))
	}
	for _, files := range [][]string{{"main.go", "batch.go"}, {"mails/main.go"}} {
		parent := t.TempDir()
		if err := os.Symlink(root, filepath.Join(parent, "everonce")); err != nil {
			t.Fatal(err)
		}
		program.Shell(t, parent, begin[0], "GOWORK=off", "GOFLAGS=-mod=mod")
		dir := filepath.Join(parent, "billing")
		for _, file := range files {
			source, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, filepath.Base(file)), source, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		program.Shell(t, dir, "go mod tidy && go build -o billing .", "GOWORK=off", "GOFLAGS=-mod=mod")
	}
}
