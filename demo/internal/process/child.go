// Package process runs the demo's programs as real processes: this executable again, with a hidden
// command. A child listens on a loopback address that it announces, and it never outlives its parent.
package process

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

const (
	// announceLimit is how long a child may take until it listens: long, because the machine may be busy.
	announceLimit = 30 * time.Second
	// stopLimit is how long a child may take to stop.
	stopLimit = 10 * time.Second
	// tail is how much of what a child writes to standard error goes into an error text, in bytes.
	tail = 4 << 10
)

// Child is a running process.
type Child struct {
	name   string
	addr   string
	cmd    *exec.Cmd
	stdin  io.Closer
	stderr bytes.Buffer // complete when the process has ended
	ending atomic.Bool  // by Kill or Stop
	done   chan struct{}
}

// Start starts this program with the given arguments and waits until it has announced its address. If it ends later,
// and neither by Kill nor by Stop, failed is called with the reason. name is for error texts.
func Start(ctx context.Context, name string, failed func(error), args ...string) (*Child, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("%s: which program is this? %w", name, err)
	}
	c := &Child{name: name, done: make(chan struct{})}
	c.cmd = exec.Command(self, args...) //nolint:gosec,noctx // this program itself; the parent ends it
	c.cmd.Args[0] = os.Args[0]          // a program with several names acts by the name it was called with
	c.cmd.Stderr = &c.stderr
	// The child reads its standard input until that ends, which it does when the parent is gone, for whatever reason: see
	// [Serve].
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
	announced, ended := make(chan string, 1), make(chan error, 1)
	go func() {
		line, _ := bufio.NewReader(stdout).ReadString('\n') //nolint:errcheck // the process has ended without it
		if line != "" {
			announced <- strings.TrimSpace(line)
		}
		_, _ = io.Copy(io.Discard, stdout) //nolint:errcheck // it ends with the process
		_ = c.cmd.Wait()                   //nolint:errcheck // ProcessState says it
		close(c.done)
		if c.ending.Load() {
			return
		}
		err := fmt.Errorf("%s ended unexpectedly: %v%s", name, c.cmd.ProcessState, c.said())
		if line == "" {
			ended <- err
		} else {
			failed(err)
		}
	}()
	limit := time.NewTimer(announceLimit)
	defer limit.Stop()
	select {
	case c.addr = <-announced:
		return c, nil
	case err := <-ended:
		return nil, err
	case <-ctx.Done():
		err = context.Cause(ctx)
	case <-limit.C:
		err = fmt.Errorf("%s has not come up within %v", name, announceLimit)
	}
	c.Kill()
	return nil, err
}

// said returns what the process wrote to standard error, as the end of an error text.
func (c *Child) said() string {
	text := c.stderr.Bytes()
	text = bytes.TrimSpace(text[max(0, len(text)-tail):])
	if len(text) == 0 {
		return ""
	}
	return "; it said:\n" + string(text)
}

// Addr returns the address that the child announced.
func (c *Child) Addr() string { return c.addr }

// Busy returns how many requests the child is working on.
func (c *Child) Busy(ctx context.Context) (int, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+c.addr+busyPath, http.NoBody)
	if err != nil {
		return 0, err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err
	}
	defer res.Body.Close() //nolint:errcheck // it was only read
	text, err := io.ReadAll(res.Body)
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(string(text))
}

// Kill ends the process at once, in whatever it is doing (SIGKILL), and returns when it is gone.
func (c *Child) Kill() {
	c.ending.Store(true)
	_ = c.cmd.Process.Kill() //nolint:errcheck // it is gone already
	<-c.done
}

// Stop lets the process finish the requests that are running, and returns when it is gone. One that does not finish is
// killed.
func (c *Child) Stop() {
	c.ending.Store(true)
	_ = c.stdin.Close()                                                     //nolint:errcheck // a pipe's
	limit := time.AfterFunc(stopLimit, func() { _ = c.cmd.Process.Kill() }) //nolint:errcheck // it is gone already
	defer limit.Stop()
	<-c.done
}
