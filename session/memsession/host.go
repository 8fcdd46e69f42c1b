package memsession

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/session"
)

// Options are the options of a [Host]. The zero value of each field is its default.
type Options struct {
	// Wait is how long a request waits while a copy of it is executed. After it the request is refused with
	// [session.ErrInProgress]. A negative Wait refuses at once. Default 1 s.
	Wait time.Duration
}

const defaultWait = time.Second

// Host keeps client sessions in memory. It is safe for concurrent use, and is a [session.Host].
type Host[Tx any] struct {
	tx    Tx
	wait  time.Duration
	begun time.Time

	mu      sync.Mutex
	machine *session.Machine
	ended   chan struct{} // closed and replaced when a request has been executed
}

// New returns a host without sessions. The work of every request gets tx; requests are executed at the same time, so tx
// must be safe for concurrent use. The error wraps [session.ErrConfig].
func New[Tx any](tx Tx, config session.Config, opts *Options) (*Host[Tx], error) {
	m, err := session.New(config)
	if err != nil {
		return nil, fmt.Errorf("memsession: %w", err)
	}
	var o Options
	if opts != nil {
		o = *opts
	}
	return &Host[Tx]{tx: tx, wait: cmp.Or(o.Wait, defaultWait), begun: time.Now(), machine: m, ended: make(chan struct{})}, nil
}

// Config returns the Config of the sessions, with its defaults.
func (h *Host[Tx]) Config() session.Config { return h.machine.Config() }

// Apply applies a command. The requests of one session are executed at the same time, unless it is ordered. A refusal
// is in the reply. After an error or a panic of work the number is unused. Any other error is the cause of ctx, which
// has ended while another copy was executed, or [everonce.ErrInvalidArgument].
func (h *Host[Tx]) Apply(ctx context.Context, c *session.Command, work session.Work[Tx]) (session.Reply, error) {
	if h == nil || c == nil || c.Op == session.Request && work == nil {
		return session.Reply{}, fmt.Errorf("memsession: %w: the host, the command, or the work of a request is nil", everonce.ErrInvalidArgument)
	}
	var patience <-chan time.Time
	for {
		answer, ended := h.begin(c)
		switch {
		case answer.Execute:
			return h.execute(ctx, c, work)
		case answer.Err != session.ErrInProgress || h.wait < 0:
			return answer, nil
		}
		if patience == nil {
			patience = time.After(h.wait)
		}
		select {
		case <-ended:
		case <-patience:
			return answer, nil
		case <-ctx.Done():
			return session.Reply{}, context.Cause(ctx)
		}
	}
}

func (h *Host[Tx]) begin(c *session.Command) (session.Reply, <-chan struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.machine.Begin(h.now(), c), h.ended
}

// now returns a stamp that does not go back with the wall clock.
func (h *Host[Tx]) now() int64 { return h.begun.UnixNano() + int64(time.Since(h.begun)) }

func (h *Host[Tx]) execute(ctx context.Context, c *session.Command, work session.Work[Tx]) (answer session.Reply, err error) {
	done := false
	defer func() {
		if !done { // an error, or a panic
			h.end(func() { h.machine.Abandon(c) })
		}
	}()
	result, err := work(ctx, h.tx, c.Payload)
	if err != nil {
		return session.Reply{}, err
	}
	done = true
	h.end(func() { answer = h.machine.Record(c, result) })
	return answer, nil
}

func (h *Host[Tx]) end(how func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	how()
	close(h.ended)
	h.ended = make(chan struct{})
}
