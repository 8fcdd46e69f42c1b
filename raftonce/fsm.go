package raftonce

import (
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/hashicorp/raft"

	"github.com/everonce/everonce/session"
)

// Options are the options of [NewFSM].
type Options struct {
	// Encode encodes a reply of the state machine. It must be deterministic. By default the reply must be a []byte, a
	// string, an error or nil. If Encode fails, the request is answered with [ErrNotEncoded], and its effect remains.
	Encode func(answer any) ([]byte, error)
}

// FSM is a state machine whose commands take effect once. Its replies are a [session.Reply], for [Result], or an error
// that wraps [ErrEntry] or [ErrOtherConfig].
//
// It implements [raft.BatchingFSM] and [raft.ConfigurationStore], and passes their calls to the inner state machine if
// that implements them.
type FSM struct {
	table
	inner  raft.FSM
	encode func(any) ([]byte, error)

	snapped atomic.Bool // a snapshot was restored, or taken

	mu sync.Mutex // guards the machine, and orders Release and Apply
}

var (
	_ raft.BatchingFSM        = (*FSM)(nil)
	_ raft.ConfigurationStore = (*FSM)(nil)
)

// NewFSM wraps a state machine. All nodes must have the same config, which cannot be changed during the life of the
// cluster. The error wraps [session.ErrConfig].
func NewFSM(inner raft.FSM, config session.Config, opts *Options) (*FSM, error) {
	f := &FSM{inner: inner, encode: encode}
	if err := f.configure(config); err != nil {
		return nil, err
	}
	if opts != nil && opts.Encode != nil {
		f.encode = opts.Encode
	}
	return f, nil
}

// Apply applies an entry. The inner state machine gets it only if it is a request that was not executed before, with
// the request's payload as its Data.
func (f *FSM) Apply(log *raft.Log) any {
	f.mu.Lock()
	defer f.mu.Unlock()
	stamp, c, err := f.read(log)
	if err != nil {
		return err
	}
	answer := f.machine.Apply(stamp, &c, func() []byte { return f.result(f.inner.Apply(request(log, &c))) })
	f.publish()
	return answer
}

// StoreConfiguration passes the configuration to the inner state machine.
func (f *FSM) StoreConfiguration(index uint64, configuration raft.Configuration) {
	if inner, ok := f.inner.(raft.ConfigurationStore); ok {
		inner.StoreConfiguration(index, configuration)
	}
}

// request returns the entry that the inner state machine gets.
func request(log *raft.Log, c *session.Command) *raft.Log {
	inner := *log
	inner.Data = c.Payload
	return &inner
}

// The first byte of a recorded result.
const (
	succeeded = 0
	failed    = 1
	unencoded = 2
)

func (f *FSM) result(answer any) []byte {
	if err, ok := answer.(error); ok {
		return recorded(nil, err)
	}
	b, err := f.encode(answer)
	if err != nil {
		return append([]byte{unencoded}, err.Error()...)
	}
	return recorded(b, nil)
}

func recorded(b []byte, err error) []byte {
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
	return nil, fmt.Errorf("it is a %T (set Options.Encode)", answer)
}

// Result returns the state machine's reply to a request: its bytes, or a [*FailedError]. Other errors are the
// [session.Refusal] of a request that was not executed now, and [ErrElided] or [ErrNotEncoded] of one that was.
func Result(a session.Reply) ([]byte, error) {
	switch {
	case a.Err != 0:
		return nil, a.Err
	case a.Elided:
		return nil, ErrElided
	case len(a.Result) == 0: // the command was not a request
		return nil, nil
	case a.Result[0] == failed:
		return nil, &FailedError{Message: string(a.Result[1:])}
	case a.Result[0] == unencoded:
		return nil, fmt.Errorf("%w: %s", ErrNotEncoded, a.Result[1:])
	}
	return a.Result[1:], nil
}
