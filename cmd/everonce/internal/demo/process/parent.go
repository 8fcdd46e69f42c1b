// Package process runs the demo's programs as real processes: this executable again, with a hidden
// command. A child listens on a loopback address that it announces, and it never outlives its parent.
package process

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"
)

// announceLimit is how long a child may take until it listens: much, for a machine that is busy.
const announceLimit = 30 * time.Second

// Child is a running process.
type Child struct {
	name   string
	addr   string
	cmd    *exec.Cmd
	stdin  io.Closer
	stderr *tail
	done   chan struct{}

	mu     sync.Mutex
	ending bool // somebody wants it to end
	err    error
}

// Start starts this program with the given arguments and waits until it has announced its address. name
// is for error texts.
func Start(ctx context.Context, name string, args ...string) (*Child, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("%s: which program is this? %w", name, err)
	}
	c := &Child{name: name, stderr: &tail{}, done: make(chan struct{})}
	c.cmd = exec.Command(self, args...) //nolint:gosec,noctx // this program itself; its end is the parent's to order
	c.cmd.Args[0] = os.Args[0]          // a program of several names goes by the one that it was called by
	c.cmd.Stderr = c.stderr
	// The child reads its standard input until that ends, which it does when the parent is gone, however
	// it went: see [Serve].
	if c.stdin, err = c.cmd.StdinPipe(); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	stdout, err := c.cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if err := c.cmd.Start(); err != nil {
		return nil, fmt.Errorf("%s does not start: %w", name, err)
	}
	announced := make(chan string, 1)
	go func() {
		line, _ := bufio.NewReader(stdout).ReadString('\n') //nolint:errcheck // an empty line says it
		announced <- strings.TrimSpace(line)
		_, _ = io.Copy(io.Discard, stdout) //nolint:errcheck // it ends with the process
		c.reap()
	}()
	limit := time.NewTimer(announceLimit)
	defer limit.Stop()
	select {
	case c.addr = <-announced:
		if c.addr != "" {
			return c, nil
		}
		<-c.done
		return nil, c.Err()
	case <-ctx.Done():
		err = context.Cause(ctx)
	case <-limit.C:
		err = fmt.Errorf("%s has not come up within %v%s", name, announceLimit, c.stderr)
	}
	c.Kill()
	return nil, err
}

// reap waits for the end of the process.
func (c *Child) reap() {
	err := c.cmd.Wait()
	c.mu.Lock()
	if !c.ending {
		if err == nil {
			err = errors.New("exit status 0")
		}
		c.err = fmt.Errorf("%s ended by itself: %w%s", c.name, err, c.stderr)
	}
	c.mu.Unlock()
	close(c.done)
}

// Addr returns the address that the child announced.
func (c *Child) Addr() string { return c.addr }

// Done is closed when the process has ended.
func (c *Child) Done() <-chan struct{} { return c.done }

// Err returns why the process ended, once it has; nil where it was made to.
func (c *Child) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// Kill ends the process at once, in whatever it is doing (SIGKILL), and returns when it is gone.
func (c *Child) Kill() {
	c.end(func() { _ = c.cmd.Process.Kill() }) //nolint:errcheck // it is gone already
}

// stopLimit is how long a child may take to stop.
const stopLimit = 10 * time.Second

// Stop asks the process to finish what it is doing, and returns when it is gone. One that does not
// finish is killed.
func (c *Child) Stop() {
	c.end(func() { _ = c.stdin.Close() }) //nolint:errcheck // a pipe's
}

func (c *Child) end(how func()) {
	c.mu.Lock()
	c.ending = true
	c.mu.Unlock()
	how()
	limit := time.AfterFunc(stopLimit, func() { _ = c.cmd.Process.Kill() }) //nolint:errcheck // it is gone already
	defer limit.Stop()
	<-c.done
}

// tail keeps the last of what a child says on standard error.
type tail struct {
	mu  sync.Mutex
	buf []byte
}

const tailSize = 4 << 10

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.buf = append(t.buf, p...)
	if over := len(t.buf) - tailSize; over > 0 {
		t.buf = append(t.buf[:0], t.buf[over:]...)
	}
	return len(p), nil
}

// String returns it as the end of an error text.
func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	if said := strings.TrimSpace(string(t.buf)); said != "" {
		return "; it said:\n" + said
	}
	return ""
}
