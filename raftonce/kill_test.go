package raftonce_test

import (
	"bufio"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/everonce/everonce/session"
)

const killedFolder = "RAFTONCE_KILLED_FOLDER"

// TestKilledProcess is no test, but the process that is killed: it goes on where the last one was, and says each
// request that is answered.
func TestKilledProcess(t *testing.T) {
	dir := os.Getenv(killedFolder)
	if dir == "" {
		return
	}
	d := startDurable(t, dir, true, first)
	id := d.send(&session.Command{Op: session.Register, Nonce: nonce}).Session
	for n := uint64(len(d.executed())); ; n++ { // from the last one on, whose answer may have been lost
		if n == 0 {
			continue
		}
		c := request(id, n, fmt.Sprint("pay ", n))
		c.Mark = n - min(n, 10)
		if a := d.send(c); a.Err != 0 {
			t.Fatalf("request %d: %v", n, a.Err)
		}
		fmt.Println("answered", n)
		if n%25 == 0 {
			d.raft.Snapshot() // beside the rest
		}
	}
}

// TestKilled: a process that is killed at any moment, and starts again, has lost and doubled nothing.
func TestKilled(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a")
	answered, kills := 0, 0
	for kills < 8 {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestKilledProcess$", "-test.timeout=5m") //nolint:gosec // ourselves
		cmd.Env = append(os.Environ(), killedFolder+"="+dir)
		cmd.Stderr = os.Stderr
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		for lines, left := bufio.NewScanner(out), 1+rand.IntN(60); lines.Scan(); {
			said, found := strings.CutPrefix(lines.Text(), "answered ")
			if !found {
				t.Error(lines.Text())
				continue
			}
			if answered, err = strconv.Atoi(said); err != nil {
				t.Fatal(err)
			}
			if left--; left == 0 {
				if err := cmd.Process.Kill(); err != nil {
					t.Fatal(err)
				}
				kills++
			}
		}
		if err := cmd.Wait(); err == nil || err.Error() != "signal: killed" {
			t.Fatalf("the process ended: %v", err)
		}
	}
	d := startDurable(t, dir, true, first)
	d.send(&session.Command{Op: session.Tick}) // after all earlier entries
	times := d.executed()
	for n := 1; n <= max(answered, len(times)); n++ {
		if got := times[fmt.Sprint("pay ", n)]; got != 1 {
			t.Errorf("request %d of %d was executed %d times", n, answered, got)
		}
	}
	if len(times) > answered+1 {
		t.Errorf("%d requests were executed, and %d answered", len(times), answered)
	}
	d.stop()
}
