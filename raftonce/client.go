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

// Transport sends a command to the node at an address, where [Node.Handle] takes it, and returns what that returned. After
// an error the client takes it that the command may have arrived.
type Transport func(ctx context.Context, address string, command []byte) ([]byte, error)

// ClientOptions are the options of [NewClient].
type ClientOptions struct {
	// Attempt is how long one attempt may take, before another node is asked. Default 5 s. That of a renewal takes a sixth of
	// the lease at most.
	Attempt time.Duration
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
	renewed chan struct{} // closed when nothing renews any more
	calls   *sessioncalls.Calls

	mu   sync.Mutex
	node string // that is taken to be the leader
	next int    // of nodes, to be tried
}

// NewClient registers a session with the cluster of these nodes, of which some may be down, and renews it until
// [Client.Close]. It tries until ctx ends.
func NewClient(ctx context.Context, nodes []string, transport Transport, opts *ClientOptions) (*Client, error) {
	if len(nodes) == 0 || transport == nil {
		return nil, errors.New("raftonce: a client needs nodes and a transport")
	}
	c := &Client{send: transport, nodes: slices.Clone(nodes), attempt: 5 * time.Second, node: nodes[0], renewed: make(chan struct{}), calls: sessioncalls.New(0)}
	if opts != nil && opts.Attempt > 0 {
		c.attempt = opts.Attempt
	}
	_, _ = rand.Read(c.nonce[:]) // it does not fail
	got := c.ask(ctx, &session.Command{Op: session.Register, Nonce: c.nonce})
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

// Do has a request executed once, and returns what the state machine answered: its bytes, or a [*FailedError]; or [ErrElided]
// or [ErrNotEncoded], if it was executed and there are no bytes. It asks, of whatever node is the leader, until it has an
// answer or ctx ends.
//
// An error that wraps [everonce.ErrOutcomeUnknown] says that the request may have been executed, or not: ctx or the
// session has ended in between. Which one is only in its text, so that it matches nothing else. A copy that is still on its
// way may be executed after Do has returned, until the cluster knows that the request was given up: the client tells it at
// once, and again until it is answered, but not before the calls that began earlier have returned, nor of a request whose
// number is more than session.Config.Window above the last one that was answered. For certainty call [Client.Close]: when
// that has succeeded, nothing of the session is executed any more.
//
// If the request was never sent, or never taken, the error is that of ctx, session.ErrSessionExpired, [ErrClosed] or
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
	got := c.ask(ctx, &request)
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
		return nil, fmt.Errorf("raftonce: request %d: %w: %v", number, everonce.ErrOutcomeUnknown, got.err) //nolint:errorlint // who looks for the cause would take it that nothing was sent
	case got.err != nil:
		return nil, fmt.Errorf("raftonce: request %d was not taken: %w", number, got.err)
	}
	return Result(got.answer)
}

// Leader returns the address of the node that last answered as the leader, for reads.
func (c *Client) Leader() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.node
}

// Close ends the session. The outcome of calls that are under way is unknown then.
func (c *Client) Close(ctx context.Context) error {
	first := c.calls.Lose(ErrClosed)
	c.cancel()
	<-c.renewed
	if !first { // it was closed, or has expired
		return nil
	}
	got := c.ask(ctx, &session.Command{Op: session.End, Session: c.id, Nonce: c.nonce})
	if got.answer.Err == session.ErrSessionExpired { // by an attempt whose answer was lost
		return nil
	}
	return errors.Join(got.err, got.answer.Err.Or())
}

// beat renews the session, and tells the mark.
func (c *Client) beat(ctx context.Context, mark uint64) {
	beat := session.Beat{Session: c.id, Nonce: c.nonce, Mark: mark}
	got := c.ask(ctx, &session.Command{Op: session.KeepAlive, Beats: []session.Beat{beat}})
	for _, refusal := range got.answer.Beats {
		c.calls.Note(refusal)
	}
}
