package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"
)

// fleet keeps workers running: each is a process, which may kill itself at the worst time, and is started again then.
type fleet struct {
	program string
	orders  orders
	size    int
	said    io.Writer // what the workers log

	mu       sync.Mutex
	toKill   int // wanted kills that no worker has been given yet
	kills    int
	counts   map[string]int
	acked    []string // the IDs, in order
	running  map[*exec.Cmd]bool
	stopping bool
	slots    sync.WaitGroup
}

// start starts the workers.
func (f *fleet) start(ctx context.Context) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.stopping = false
	for range f.size {
		f.slots.Go(func() { f.keep(ctx) })
	}
}

// stop lets the workers finish their messages, and returns when they have ended.
func (f *fleet) stop() {
	f.mu.Lock()
	f.stopping = true
	for cmd := range f.running {
		cmd.Process.Signal(syscall.SIGTERM) //nolint:errcheck // it may have ended
	}
	f.mu.Unlock()
	f.slots.Wait()
}

// keep runs one worker after the other.
func (f *fleet) keep(ctx context.Context) {
	for ctx.Err() == nil {
		err := f.run(ctx)
		if errors.Is(err, errStopping) {
			return
		}
		if err != nil && pause(ctx, 200*time.Millisecond) != nil {
			return
		}
	}
}

var errStopping = errors.New("no worker is started any more")

// run runs a worker to its end: nil where it was killed.
func (f *fleet) run(ctx context.Context) error {
	cmd := exec.CommandContext(ctx, f.program, workerFlag) //nolint:gosec // this program
	cmd.Stderr = f.said
	cmd.Env = append(os.Environ(), "GOMAXPROCS=2")
	in, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	defer in.Close() //nolint:errcheck // the worker is gone then
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	told, err := f.begin(cmd)
	if err != nil {
		return err
	}
	if err := json.NewEncoder(in).Encode(told); err == nil {
		f.listen(out)
	}
	return f.end(cmd, told, cmd.Wait())
}

func (f *fleet) begin(cmd *exec.Cmd) (orders, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	told := f.orders
	if f.stopping {
		return told, errStopping
	}
	if err := cmd.Start(); err != nil {
		return told, err
	}
	f.running[cmd] = true
	if f.toKill > 0 {
		f.toKill--
		told.KillAfter = 3 + rand.N(8) //nolint:gosec // any
	}
	return told, nil
}

func (f *fleet) end(cmd *exec.Cmd, told orders, err error) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.running, cmd)
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		if status, ok := exit.Sys().(syscall.WaitStatus); ok && status.Signal() == syscall.SIGKILL && told.KillAfter > 0 {
			f.kills++
			return nil
		}
	}
	if told.KillAfter > 0 { // it ended in another way
		f.toKill++
	}
	if err == nil {
		return errStopping
	}
	return err
}

// listen counts what a worker tells.
func (f *fleet) listen(out io.Reader) {
	for lines := bufio.NewScanner(out); lines.Scan(); {
		what, id, _ := strings.Cut(lines.Text(), " ")
		f.mu.Lock()
		f.counts[what]++
		if what == acknowledged {
			f.acked = append(f.acked, id)
		}
		f.mu.Unlock()
	}
}

// ackedSince returns what was acknowledged after the first so many, and how many there are by now.
func (f *fleet) ackedSince(n int) (ids []string, now int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append(ids, f.acked[n:]...), len(f.acked)
}
