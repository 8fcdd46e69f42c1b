package raftonce

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"github.com/everonce/everonce/session"
)

// Options of [NewFSM].
type Options struct {
	// Encode turns what the state machine answers into bytes. It must be deterministic. By default the answer must be a
	// []byte, a string, an error or nil.
	Encode func(answer any) ([]byte, error)
}

// FSM is a state machine whose commands take effect once. Its replies are a [session.Answer], for [Result], or an error
// that wraps [ErrEntry].
//
// It is a [raft.BatchingFSM], and a [raft.ConfigurationStore]: what the state machine in it is, it is passed through.
type FSM struct {
	inner  raft.FSM
	encode func(any) ([]byte, error)
	name   string

	now, lease, sessions atomic.Int64 // of the machine, to be read while it is busy

	mu      sync.Mutex // of what follows; it also keeps Release in step with Apply
	machine *session.Machine
}

var (
	_ raft.BatchingFSM        = (*FSM)(nil)
	_ raft.ConfigurationStore = (*FSM)(nil)
)

// NewFSM wraps a state machine. All nodes must be given the same config, which must not change as long as the cluster
// lives. The error wraps [session.ErrConfig].
func NewFSM(inner raft.FSM, config session.Config, opts *Options) (*FSM, error) {
	machine, err := session.New(config)
	if err != nil {
		return nil, err
	}
	f := &FSM{inner: inner, encode: encode, name: config.Name, machine: machine}
	if opts != nil && opts.Encode != nil {
		f.encode = opts.Encode
	}
	f.publish()
	return f, nil
}

// publish tells those that do not wait for the machine.
func (f *FSM) publish() {
	f.now.Store(f.machine.Now())
	f.lease.Store(int64(f.machine.Config().Lease))
	f.sessions.Store(int64(f.machine.Len()))
}

// Sessions returns how many sessions there are.
func (f *FSM) Sessions() int { return int(f.sessions.Load()) }

// Lease is how long a session lives after its last command.
func (f *FSM) Lease() time.Duration { return time.Duration(f.lease.Load()) }

// Apply applies an entry. The state machine sees it only if it is a request that was not executed before, with the
// request's payload as its Data.
func (f *FSM) Apply(log *raft.Log) any {
	stamp, c, err := parseEntry(log.Data)
	if err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	answer := f.machine.Apply(stamp, &c, func() []byte { return f.result(f.inner.Apply(request(log, &c))) })
	f.publish()
	return answer
}

// StoreConfiguration passes the configuration through.
func (f *FSM) StoreConfiguration(index uint64, configuration raft.Configuration) {
	if inner, ok := f.inner.(raft.ConfigurationStore); ok {
		inner.StoreConfiguration(index, configuration)
	}
}

// request is the entry as the state machine in it sees it.
func request(log *raft.Log, c *session.Command) *raft.Log {
	inner := *log
	inner.Data = c.Payload
	return &inner
}

// The first byte of a recorded result.
const (
	succeeded = 0
	failed    = 1
)

func (f *FSM) result(answer any) []byte {
	if err, ok := answer.(error); ok {
		return append([]byte{failed}, err.Error()...)
	}
	b, err := f.encode(answer)
	if err != nil {
		return append([]byte{failed}, err.Error()...)
	}
	return append([]byte{succeeded}, b...)
}

func encode(answer any) ([]byte, error) {
	switch a := answer.(type) {
	case nil:
		return nil, nil
	case []byte:
		return a, nil
	case string:
		return []byte(a), nil
	}
	return nil, fmt.Errorf("raftonce: executed, but the answer is a %T (set Options.Encode)", answer)
}

// Result returns what the state machine answered a request: its bytes, or a [*FailedError]. Other errors are the
// [session.Refusal] of a request that was not executed now, and [ErrElided].
func Result(a session.Answer) ([]byte, error) {
	switch {
	case a.Err != 0:
		return nil, a.Err
	case a.Elided:
		return nil, ErrElided
	case len(a.Result) == 0: // of a command that is no request
		return nil, nil
	case a.Result[0] == failed:
		return nil, &FailedError{Message: string(a.Result[1:])}
	}
	return a.Result[1:], nil
}
