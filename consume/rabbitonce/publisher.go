package rabbitonce

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/everonce/everonce/consume"
)

// publisher publishes to queues, and returns when the broker has confirmed the message. It has a separate connection:
// the broker blocks a publishing connection while it is short of memory or disk, and acknowledgements must not wait
// for that.
type publisher struct {
	dialing dialing

	turn    chan struct{} // holds a value while a call uses what follows
	conn    *link
	blocked *blockade
	free    []*publishing
	closed  bool
}

func newPublisher(d dialing) *publisher { return &publisher{dialing: d, turn: make(chan struct{}, 1)} }

// lock waits for its turn, but not longer than ctx: the current holder may be waiting for a broker that does not
// answer.
func (p *publisher) lock(ctx context.Context) error {
	select {
	case p.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", errNotTaken, context.Cause(ctx))
	}
}

func (p *publisher) unlock() { <-p.turn }

// publishing is a channel that one call publishes on, so that returned messages belong to that call.
type publishing struct {
	conn    *link
	ch      *amqp.Channel
	returns chan amqp.Return
	closed  chan *amqp.Error // why it was closed
	blocked *blockade
	room    int // for the headers of a message
}

var (
	errBlocked         = errors.New("rabbitonce: the broker blocks publishers (it is short of memory or disk)")
	errNotTaken        = errors.New("rabbitonce: the broker did not confirm a message")
	errUnroutable      = fmt.Errorf("%w: no such queue", consume.ErrRefused)
	errFull            = fmt.Errorf("%w: the queue is full", consume.ErrRefused) // the usual reason for a negative confirm
	errTooLarge        = errors.New("rabbitonce: the message is larger than the broker accepts")
	errPublisherClosed = errors.New("rabbitonce: the publisher is closed")
)

// publish publishes msg to the queue. A nil error says that the broker has confirmed it and has not returned it; after
// any other error the result is unknown, and it may be published again.
func (p *publisher) publish(ctx context.Context, queue string, msg amqp.Publishing) error {
	c, err := p.channel(ctx)
	if err != nil {
		return err
	}
	err = c.publish(ctx, queue, msg)
	p.release(ctx, c, err)
	return err
}

// release takes a channel back from a call that ended with err.
func (p *publisher) release(ctx context.Context, c *publishing, err error) {
	if err != nil {
		if e, ok := errors.AsType[*amqp.Error](err); ok && e.Code == amqp.AccessRefused { // the next connection may use a new token
			p.leave(ctx, c.conn)
			return
		}
		// A late return or confirm on this channel could be taken for the next message's. A blocked connection does not
		// answer.
		go c.ch.Close() //nolint:errcheck // it may be closed already
		return
	}
	if p.lock(ctx) != nil { // the message is confirmed: do not spend the remaining time to keep a channel
		go c.ch.Close() //nolint:errcheck // as above
		return
	}
	defer p.unlock()
	p.free = append(p.free, c)
}

// leave ends the use of a connection, so that the next message uses another. Other unconfirmed messages on it are
// published again: the broker may then have two copies, which have one key.
func (p *publisher) leave(ctx context.Context, conn *link) {
	go conn.hangUp() //nolint:errcheck // in the background
	if p.lock(ctx) == nil {
		if p.conn == conn {
			p.conn = nil
		}
		p.unlock()
	}
}

// declare declares the queues again.
func (p *publisher) declare(ctx context.Context, q *Queue) error {
	if err := p.lock(ctx); err != nil {
		return err
	}
	defer p.unlock()
	if p.conn == nil || p.conn.IsClosed() {
		return errNotTaken
	}
	stop := context.AfterFunc(ctx, p.conn.cut)
	defer stop()
	return q.establish(p.conn)
}

// channel returns a channel for the exclusive use of the caller.
func (p *publisher) channel(ctx context.Context) (*publishing, error) {
	if err := p.lock(ctx); err != nil {
		return nil, err
	}
	defer p.unlock()
	if p.closed { // a new connection would never be closed
		return nil, errPublisherClosed
	}
	for len(p.free) > 0 {
		last := len(p.free) - 1
		c := p.free[last]
		p.free = p.free[:last]
		if !c.ch.IsClosed() {
			return c, nil
		}
	}
	if p.conn == nil || p.conn.IsClosed() {
		conn, err := p.dialing.dial(ctx, "publish")
		if err != nil {
			return nil, err
		}
		p.conn, p.blocked = conn, watchBlockade(conn)
	}
	blocked := p.blocked.since()
	select {
	case <-blocked:
		return nil, errBlocked
	default:
	}
	opened := make(chan *publishing)
	failed := make(chan error, 1)
	gone := make(chan struct{})
	defer close(gone)
	go func(conn *link, b *blockade) { // the library waits without a bound, and a broker that blocks publishers answers only afterwards
		c, err := openPublishing(conn, b)
		if err != nil {
			failed <- err
			return
		}
		select {
		case opened <- c:
		case <-gone:
			c.ch.Close() //nolint:errcheck // it may be closed already
		}
	}(p.conn, p.blocked)
	select {
	case c := <-opened:
		return c, nil
	case err := <-failed:
		return nil, err
	case <-blocked:
		return nil, errBlocked
	case <-ctx.Done():
		p.conn.cut()
		p.conn = nil
		return nil, fmt.Errorf("rabbitonce: opening a channel: %w", context.Cause(ctx))
	}
}

func openPublishing(conn *link, b *blockade) (*publishing, error) {
	ch, err := conn.Channel()
	if err != nil {
		return nil, fmt.Errorf("rabbitonce: opening a channel: %w", err)
	}
	c := &publishing{
		conn: conn, ch: ch, returns: ch.NotifyReturn(make(chan amqp.Return, pipelined)), closed: ch.NotifyClose(make(chan *amqp.Error, 1)),
		blocked: b, room: roomForHeaders(conn.Config.FrameSize),
	}
	if err := ch.Confirm(false); err != nil {
		return nil, errors.Join(fmt.Errorf("rabbitonce: asking for confirms: %w", err), ch.Close())
	}
	return c, nil
}

func (c *publishing) publish(ctx context.Context, queue string, msg amqp.Publishing) error {
	fit(msg.Headers, c.room)
	confirm, err := c.send(ctx, "", queue, msg)
	if err != nil {
		return err
	}
	if err := c.wait(ctx, confirm); err != nil {
		return err
	}
	select {
	case r, ok := <-c.returns: // a return comes before its confirm, which is still positive
		if ok {
			return fmt.Errorf("%w: %q: %s", errUnroutable, queue, r.ReplyText)
		}
	default:
	}
	switch {
	case confirm.Acked():
		return nil
	case c.ch.IsClosed(): // the library then gives waiting messages a negative confirm
		return c.refusal()
	}
	return fmt.Errorf("%w: %q", errFull, queue)
}

// send writes a message. The confirm has the result.
func (c *publishing) send(ctx context.Context, exchange, routingKey string, msg amqp.Publishing) (*amqp.DeferredConfirmation, error) {
	select {
	case <-c.blocked.since():
		return nil, errBlocked
	default:
	}
	const mandatory = true
	stop := context.AfterFunc(ctx, c.conn.cut) // the library writes without a bound, and the broker may not read
	confirm, err := c.ch.PublishWithDeferredConfirm(exchange, routingKey, mandatory, false, msg)
	if !stop() && err != nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errNotTaken, err)
	}
	return confirm, nil
}

// wait waits for the broker's confirm of a message.
func (c *publishing) wait(ctx context.Context, confirm *amqp.DeferredConfirmation) error {
	select {
	case <-confirm.Done():
		return nil
	case <-c.blocked.since(): // the message is not confirmed while the broker is short
		return errBlocked
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", errNotTaken, context.Cause(ctx))
	}
}

// refusal returns why the channel was closed. It may be called once.
func (c *publishing) refusal() error {
	switch err := <-c.closed; {
	case err == nil:
		return errNotTaken
	case err.Code == amqp.PreconditionFailed && strings.Contains(err.Reason, "message size"):
		return fmt.Errorf("%w: %w", errTooLarge, err)
	default: // for example, the user may not write
		return fmt.Errorf("%w: %w", errNotTaken, err)
	}
}

// close closes the connection. Later calls of publish fail.
func (p *publisher) close() error {
	p.turn <- struct{}{}
	defer p.unlock()
	p.closed = true
	if p.conn == nil || p.conn.IsClosed() {
		return nil
	}
	return p.conn.hangUp()
}

// blockade tracks whether the broker has blocked a connection.
type blockade struct {
	mu sync.Mutex
	ch chan struct{} // closed while it is blocked
}

func watchBlockade(conn *link) *blockade {
	b := &blockade{ch: make(chan struct{})}
	changes := conn.NotifyBlocked(make(chan amqp.Blocking, 4))
	go func() {
		blocked := false
		for change := range changes { // closed with the connection
			if change.Active == blocked {
				continue
			}
			blocked = change.Active
			b.mu.Lock()
			if blocked {
				close(b.ch)
			} else {
				b.ch = make(chan struct{})
			}
			b.mu.Unlock()
		}
	}()
	return b
}

// since returns a channel that is closed when the connection is blocked.
func (b *blockade) since() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.ch
}
