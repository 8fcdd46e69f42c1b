package main

import (
	"context"
	"math/rand/v2"
	"syscall"
	"time"
)

// fault is a disturbance of a node. The function that it returns ends it.
type fault struct {
	name    string
	inflict func(r *run, p *process) (heal func() error, err error)
}

var faults = []fault{
	{"killed", (*run).kill},
	{"killed", (*run).kill},
	{"paused", func(_ *run, p *process) (func() error, error) {
		return func() error { return p.cmd.Process.Signal(syscall.SIGCONT) }, p.cmd.Process.Signal(syscall.SIGSTOP)
	}},
	{"cut off silently", func(r *run, p *process) (func() error, error) { return r.network.cutOff(p.Name, swallow) }},
	{"cut off by resets", func(r *run, p *process) (func() error, error) { return r.network.cutOff(p.Name, reset) }},
	{"not heard by clients", func(r *run, p *process) (func() error, error) { return r.network.hush(p.Name, swallow) }},
}

// kill kills a node, which is healed by a start with its files.
func (r *run) kill(p *process) (heal func() error, err error) {
	r.kills++
	return func() error { return p.start(context.Background()) }, p.kill()
}

// feed gives the transfers to the tellers. In the middle of each part, when all have their hands full, something is
// done to a node, mostly to the leader, for longer than it takes to elect another.
func (r *run) feed(ctx context.Context, queue chan<- Transfer, transfers []Transfer) error {
	random := rand.New(rand.NewPCG(r.Seed, 2)) //nolint:gosec // when, whom and what
	give := func(some []Transfer) error {
		for _, t := range some {
			select {
			case queue <- t:
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
		return nil
	}
	var order []int
	for i := range r.Faults {
		if len(order) == 0 {
			order = random.Perm(len(faults))
		}
		f := faults[order[0]]
		order = order[1:]
		part := transfers[len(transfers)*i/(r.Faults+1) : len(transfers)*(i+1)/(r.Faults+1)]
		before := len(part)/4 + random.IntN(len(part)/2+1)
		if err := give(part[:before]); err != nil {
			return err
		}
		victim := r.leader()
		if random.IntN(4) == 0 {
			victim = names[random.IntN(len(names))]
		}
		length := 700*time.Millisecond + time.Duration(random.IntN(1000))*time.Millisecond
		r.Log.Printf("%v: %s is %s for %v", time.Duration(r.now()), victim, f.name, length)
		heal, err := f.inflict(r, r.processes[victim])
		if err != nil {
			return err
		}
		healed := make(chan error, 1)
		go func() {
			pause(ctx, length) //nolint:errcheck // it is healed in any case
			healed <- heal()
		}()
		err = give(part[before:])
		if healErr := <-healed; healErr != nil {
			return healErr
		}
		if err != nil {
			return err
		}
	}
	return give(transfers[len(transfers)*r.Faults/(r.Faults+1):])
}
