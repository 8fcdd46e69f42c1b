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
	"strings"
	"syscall"
	"time"
)

// process is a service in a separate process, which may be killed, and started again at the same address.
type process struct {
	serviceSettings
	said io.Writer
	cmd  *exec.Cmd
	in   io.Closer // the service ends with it
}

// anywhere is any free port that only this machine can reach.
const anywhere = "127.0.0.1:0"

// startLimit is how long a service may take until it listens: long, because the machine may be busy.
const startLimit = 30 * time.Second

// start starts the service, and returns when it listens.
func (p *process) start(ctx context.Context) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	p.cmd = exec.CommandContext(context.WithoutCancel(ctx), self, serviceFlag) //nolint:gosec // this program
	p.cmd.Stderr = p.said
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
	if err := json.NewEncoder(in).Encode(p.serviceSettings); err != nil {
		return errors.Join(err, p.stop())
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		return fmt.Errorf("the service %s does not come up: %w", p.Name, errors.Join(err, p.stop()))
	}
	if p.Addr == anywhere { // it stays there
		p.Addr = strings.TrimSpace(line)
	}
	return nil
}

// kill kills the service, in whatever it is doing.
func (p *process) kill() error {
	p.cmd.Process.Kill() //nolint:errcheck // its end says it
	err := p.cmd.Wait()
	exit, ok := errors.AsType[*exec.ExitError](err)
	if !ok {
		return fmt.Errorf("the service %s has ended unexpectedly: %w", p.Name, err)
	}
	if status, ok := exit.Sys().(syscall.WaitStatus); !ok || status.Signal() != syscall.SIGKILL {
		return fmt.Errorf("the service %s has ended unexpectedly: %w", p.Name, err)
	}
	return nil
}

// stop lets the service finish its work.
func (p *process) stop() error {
	if p.cmd == nil || p.cmd.Process == nil || p.cmd.ProcessState != nil {
		return nil
	}
	late := time.AfterFunc(startLimit, func() { p.cmd.Process.Kill() }) //nolint:errcheck // it is gone then
	defer late.Stop()
	return errors.Join(p.in.Close(), p.cmd.Wait())
}
