package e2e

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/everonce/everonce/internal/testserver"
)

// programDir is where the program was built, if a test needed it.
var programDir string

// build builds the program, once.
var build = sync.OnceValues(func() (path string, err error) {
	if programDir, err = os.MkdirTemp("", "everonce-e2e-program-"); err != nil {
		return "", err
	}
	path = filepath.Join(programDir, "everonce")
	cmd := exec.Command("go", "build", "-o", path, ".")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0") // as the Dockerfile builds it: one build of what it imports serves all tests
	cmd.Dir = filepath.Join("..", "..", "cmd", "everonce")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the program: %w\n%s", err, out)
	}
	return path, nil
})

// child is a process that announces its address, and is killed.
type child struct {
	addr   string
	cmd    *exec.Cmd
	stderr *strings.Builder
	ended  chan struct{}
}

// kill ends it in whatever it does.
func (c *child) kill() {
	_ = c.cmd.Process.Kill() //nolint:errcheck // it has ended already
	<-c.ended
}

// startChild starts a process, and reads its address from what it writes.
func startChild(t *testing.T, cmd *exec.Cmd, addrIn func(line []byte) string) *child {
	t.Helper()
	c := &child{cmd: cmd, stderr: &strings.Builder{}, ended: make(chan struct{})}
	cmd.Stderr = c.stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.kill)
	addr := make(chan string, 1)
	go func() {
		defer close(c.ended)
		lines := bufio.NewScanner(out)
		for lines.Scan() {
			if a := addrIn(lines.Bytes()); a != "" {
				addr <- a
				break
			}
		}
		_, _ = io.Copy(io.Discard, out) //nolint:errcheck // it ends with the process
		_ = cmd.Wait()                  //nolint:errcheck // it is killed
	}()
	select {
	case c.addr = <-addr:
	case <-c.ended:
		t.Fatalf("%s ended before it was up: %s", cmd.Path, c.stderr)
	}
	return c
}

// proxyLease is how long a claim outlives a proxy that was killed, in these tests.
const proxyLease = "1s"

// startProxy starts `everonce proxy`: the program, as users have it.
func startProxy(t *testing.T, listen, upstream, store string, flags ...string) *child {
	t.Helper()
	program, err := build()
	if err != nil {
		t.Fatal(err)
	}
	args := append([]string{
		"proxy", "--listen", listen, "--upstream", "http://" + upstream, "--store", "sqlite:" + store, "--admin", "none",
		"--principal", "none", "--required", "--lease", proxyLease, "--wait", "3s",
	}, flags...)
	return startChild(t, exec.Command(program, args...), func(line []byte) string {
		var said struct{ Msg, Listen string }
		if json.Unmarshal(line, &said) != nil || said.Msg != "proxy runs" {
			return ""
		}
		return said.Listen
	})
}

// freeAddr returns an address without a listener.
func freeAddr(t *testing.T) string {
	t.Helper()
	return fmt.Sprintf("127.0.0.1:%d", testserver.FreePort(t))
}
