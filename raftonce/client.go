package raftonce

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/internal/sessioncalls"
	"github.com/everonce/everonce/session"
)

// Transport sends a command to the node at an address, which passes it to [Node.Handle], and returns the result. After
// an error the client assumes that the command may have arrived.
type Transport func(ctx context.Context, address string, command []byte) ([]byte, error)

// ClientOptions are the options of [Dial].
type ClientOptions struct {
	// AttemptTimeout is how long one attempt may take, before another node is tried. Default 5 s. The attempt of a renewal
	// takes at most a sixth of the lease.
	AttemptTimeout time.Duration
}

// Client is a session with the cluster. It is safe for concurrent use.
type Client struct {
	send    Transport
	nodes   []string
	attempt time.Duration
	nonce   session.Nonce
	id      session.ID
	lease   time.Duration
	cancel  context.CancelFunc
	renewed chan struct{} // closed when the renewals have ended
	calls   *sessioncalls.Calls

	mu   sync.Mutex
	node string // the presumed leader
	next int    // index in nodes of the next to try
}

// Dial registers a session with the cluster of these nodes, some of which may be down, and renews it until
// [Client.Close]. It tries until ctx ends.
func Dial(ctx context.Context, nodes []string, transport Transport, opts *ClientOptions) (*Client, error) {
	if len(nodes) == 0 || transport == nil {
		return nil, errors.New("raftonce: a client needs nodes and a transport")
	}
	c := &Client{send: transport, nodes: slices.Clone(nodes), attempt: 5 * time.Second, node: nodes[0], renewed: make(chan struct{}), calls: sessioncalls.New(0)}
	if opts != nil && opts.AttemptTimeout > 0 {
		c.attempt = opts.AttemptTimeout
	}
	_, _ = rand.Read(c.nonce[:]) // it never fails
	got := c.call(ctx, &session.Command{Op: session.Register, Nonce: c.nonce})
	if err := errors.Join(got.err, got.answer.Err.Or()); err != nil {
		return nil, fmt.Errorf("raftonce: register: %w", err)
	}
	c.id, c.lease, c.calls = got.answer.Session, got.terms.lease, sessioncalls.New(got.terms.window)
	life, cancel := context.WithCancel(context.WithoutCancel(ctx))
	c.cancel = cancel
	go func() {
		defer close(c.renewed)
		c.calls.Renew(life, got.terms.lease, c.beat)
	}()
	return c, nil
}

// Do executes a request once, and returns the state machine's reply: its bytes, or a [*FailedError]; or [ErrElided] or
// [ErrNotEncoded], if the request was executed and its bytes were not kept. It asks the current leader, whichever node
// that is, until it has a reply or ctx ends.
//
// An error that wraps [everonce.ErrOutcomeUnknown] says that the request may or may not have been executed: ctx or the
// session ended before the reply. Its text says which of the two; errors.Is matches neither. A copy that is still on
// its way may be executed after Do has returned, until the cluster knows that the request was given up. The client
// reports that at once, and repeats it until it is answered, but not before the calls that began earlier have returned,
// nor for a request whose number is more than session.Config.Window above the last one that was answered. For certainty
// call [Client.Close]: when that has succeeded, no request of the session is executed any more.
//
// If the request was never sent, or never accepted, the error is ctx's, session.ErrSessionExpired, [ErrClosed] or
// [ErrTooLarge].
func (c *Client) Do(ctx context.Context, payload []byte) ([]byte, error) {
	number, err := c.calls.Begin(ctx)
	if err != nil {
		return nil, err
	}
	request := session.Command{
		Op: session.Request, Session: c.id, Nonce: c.nonce,
		Number: number, Fingerprint: sha256.Sum256(payload), Payload: payload,
	}
	got := c.call(ctx, &request)
	if got.err != nil && got.sent {
		c.calls.GiveUp(number)
	} else {
		c.calls.End(number, got.err == nil && got.answer.Err == 0)
	}
	switch got.answer.Err {
	case session.ErrSessionExpired, session.ErrSessionUnknown, session.ErrFenced, session.ErrStale:
		got.err = got.answer.Err
	}
	switch {
	case got.err != nil && got.sent:
		return nil, fmt.Errorf("raftonce: request %d: %w: %v", number, everonce.ErrOutcomeUnknown, got.err) //nolint:errorlint // a caller that matched the cause would assume that nothing was sent
	case got.err != nil:
		return nil, fmt.Errorf("raftonce: request %d was not accepted: %w", number, got.err)
	}
	return Result(got.answer)
}

// Leader returns the address of the node that last answered as the leader, for reads.
func (c *Client) Leader() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.node
}

// Close ends the session. The outcome of calls in progress is then unknown.
func (c *Client) Close(ctx context.Context) error {
	first := c.calls.Lose(ErrClosed)
	c.cancel()
	<-c.renewed
	if !first { // it was closed, or has expired
		return nil
	}
	got := c.call(ctx, &session.Command{Op: session.End, Session: c.id, Nonce: c.nonce})
	if got.answer.Err == session.ErrSessionExpired { // ended by an attempt whose reply was lost
		return nil
	}
	return errors.Join(got.err, got.answer.Err.Or())
}

// beat renews the session, and sends the mark.
func (c *Client) beat(ctx context.Context, mark uint64) {
	beat := session.Beat{Session: c.id, Nonce: c.nonce, Mark: mark}
	got := c.call(ctx, &session.Command{Op: session.KeepAlive, Beats: []session.Beat{beat}})
	for _, refusal := range got.answer.Beats {
		c.calls.Note(refusal)
	}
}
