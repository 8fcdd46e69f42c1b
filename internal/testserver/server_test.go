package testserver

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// A server that is down for a while keeps its port: if another server that starts meanwhile took it, a client that
// reconnects to the first would reach a stranger.
func TestAServerThatIsDownKeepsItsPort(t *testing.T) {
	first := Start(t, "redis")
	b, err := os.ReadFile(filepath.Join(first.Dir(), "pid"))
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil {
		t.Fatal(err)
	}
	process, err := os.FindProcess(pid)
	if err != nil {
		t.Fatal(err)
	}
	for err = process.Kill(); err == nil; err = process.Signal(syscall.Signal(0)) {
		time.Sleep(time.Millisecond) // until it has gone
	}
	if second := Start(t, "redis"); second.URL == first.URL {
		t.Errorf("both are at %s", first.URL)
	}
	first.Up() // which fails where it is not where it was
}
