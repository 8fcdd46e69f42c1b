package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
	"time"
)

// process is a node in a separate process, which may be killed, paused, and started again.
type process struct {
	nodeSettings
	said  io.Writer
	leads func(name string, term uint64) // is called for each term in which the node leads

	sockets []*os.File // where it listens: for peers, and for clients

	cmd *exec.Cmd
	in  io.Closer // the node ends with it
}

// startLimit is how long a node may take until it listens, or has ended: long, because the machine may be busy.
const startLimit = 30 * time.Second

// start starts the node, and returns when it listens.
func (p *process) start(ctx context.Context) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	p.cmd = exec.CommandContext(context.WithoutCancel(ctx), self, nodeFlag) //nolint:gosec // this program
	p.cmd.Stderr, p.cmd.ExtraFiles = p.said, p.sockets
	in, err := p.cmd.StdinPipe()
	if err != nil {
		return err
	}
	p.in = in
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := p.cmd.Start(); err != nil {
		return err
	}
	late := time.AfterFunc(startLimit, func() { p.cmd.Process.Kill() }) //nolint:errcheck // it is gone then
	defer late.Stop()
	if err := json.NewEncoder(in).Encode(p.nodeSettings); err != nil {
		return errors.Join(err, p.stop())
	}
	lines := bufio.NewReader(out)
	if _, err := lines.ReadString('\n'); err != nil {
		return fmt.Errorf("the node %s does not come up: %w", p.Name, errors.Join(err, p.stop()))
	}
	go func() {
		for {
			var term uint64
			if _, err := fmt.Fscanln(lines, &term); err != nil {
				return // it has ended
			}
			p.leads(p.Name, term)
		}
	}()
	return nil
}

// kill kills the node, in whatever it is doing.
func (p *process) kill() error {
	p.cmd.Process.Kill() //nolint:errcheck // its end says it
	err := p.cmd.Wait()
	exit, ok := errors.AsType[*exec.ExitError](err)
	if !ok {
		return fmt.Errorf("the node %s has ended unexpectedly: %w", p.Name, err)
	}
	if status, ok := exit.Sys().(syscall.WaitStatus); !ok || status.Signal() != syscall.SIGKILL {
		return fmt.Errorf("the node %s has ended unexpectedly: %w", p.Name, err)
	}
	return nil
}

// stop lets the node finish its work.
func (p *process) stop() error {
	if p.cmd == nil || p.cmd.Process == nil || p.cmd.ProcessState != nil {
		return nil
	}
	late := time.AfterFunc(startLimit, func() { p.cmd.Process.Kill() }) //nolint:errcheck // it is gone then
	defer late.Stop()
	return errors.Join(p.cmd.Process.Signal(syscall.SIGCONT), p.in.Close(), p.cmd.Wait())
}
