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

// publisher publishes to queues, and returns when the broker has taken the message over. It has a connection of its
// own: one that publishes is blocked while the broker is short of memory or disk, and acknowledgements must not
// wait for that.
type publisher struct {
	dialing dialing

	turn    chan struct{} // holds one while somebody has what follows
	conn    *link
	blocked *blockade
	free    []*publishing
	closed  bool
}

func newPublisher(d dialing) *publisher { return &publisher{dialing: d, turn: make(chan struct{}, 1)} }

// lock waits for its turn, and not longer than ctx: whoever has it may be waiting for a broker that does not answer.
func (p *publisher) lock(ctx context.Context) error {
	select {
	case p.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", errNotTaken, context.Cause(ctx))
	}
}

func (p *publisher) unlock() { <-p.turn }

// publishing is a channel by which one call publishes: so a message that comes back is one of its own.
type publishing struct {
	conn    *link
	ch      *amqp.Channel
	returns chan amqp.Return
	closed  chan *amqp.Error // why it was
	blocked *blockade
	room    int // for the headers of a message
}

var (
	errBlocked         = errors.New("rabbitonce: the broker blocks publishers (it is short of memory or disk)")
	errNotTaken        = errors.New("rabbitonce: the broker did not confirm a message")
	errUnroutable      = fmt.Errorf("%w: no such queue", consume.ErrRefused)
	errFull            = fmt.Errorf("%w: the queue is full", consume.ErrRefused) // what else a broker says no for
	errTooLarge        = errors.New("rabbitonce: the message is larger than the broker accepts")
	errPublisherClosed = errors.New("rabbitonce: the publisher is closed")
)

// publish gives msg to the queue. A nil error says that the broker has confirmed it and has not returned it; after
// any other nobody knows, and it may be published again.
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
		if e, ok := errors.AsType[*amqp.Error](err); ok && e.Code == amqp.AccessRefused { // the next connection may have another token
			p.leave(ctx, c.conn)
			return
		}
		// What comes late by this channel would be taken for the next message's. A blocked connection answers nothing.
		go c.ch.Close() //nolint:errcheck // it may be closed already
		return
	}
	if p.lock(ctx) != nil { // the message is there: what is left of the time is not for keeping a channel
		go c.ch.Close() //nolint:errcheck // as above
		return
	}
	defer p.unlock()
	p.free = append(p.free, c)
}

// leave ends a connection, so that the next message goes by another. What else is on its way by it gets no confirm, and is published
// again: the broker may have both copies then, which have one key.
func (p *publisher) leave(ctx context.Context, conn *link) {
	go conn.hangUp() //nolint:errcheck // nobody waits for it
	if p.lock(ctx) == nil {
		if p.conn == conn {
			p.conn = nil
		}
		p.unlock()
	}
}

// declare declares the queues once more.
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

// channel returns a channel that nobody else uses.
func (p *publisher) channel(ctx context.Context) (*publishing, error) {
	if err := p.lock(ctx); err != nil {
		return nil, err
	}
	defer p.unlock()
	if p.closed { // nobody would close what is opened now
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
	go func(conn *link, b *blockade) { // the library asks without a bound, and a broker that takes no messages answers when it does again
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
	case r, ok := <-c.returns: // a return comes before its confirm, which is positive all the same
		if ok {
			return fmt.Errorf("%w: %q: %s", errUnroutable, queue, r.ReplyText)
		}
	default:
	}
	switch {
	case confirm.Acked():
		return nil
	case c.ch.IsClosed(): // the library says no to what waits then
		return c.refusal()
	}
	return fmt.Errorf("%w: %q", errFull, queue)
}

// send writes a message. What becomes of it, the confirm says.
func (c *publishing) send(ctx context.Context, exchange, routingKey string, msg amqp.Publishing) (*amqp.DeferredConfirmation, error) {
	select {
	case <-c.blocked.since():
		return nil, errBlocked
	default:
	}
	const mandatory = true
	stop := context.AfterFunc(ctx, c.conn.cut) // the library writes without a bound, and the broker may read nothing
	confirm, err := c.ch.PublishWithDeferredConfirm(exchange, routingKey, mandatory, false, msg)
	if !stop() && err != nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errNotTaken, err)
	}
	return confirm, nil
}

// wait waits until the broker has said what became of a message.
func (c *publishing) wait(ctx context.Context, confirm *amqp.DeferredConfirmation) error {
	select {
	case <-confirm.Done():
		return nil
	case <-c.blocked.since(): // it is on the way, and stays there for as long as the broker is short
		return errBlocked
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", errNotTaken, context.Cause(ctx))
	}
}

// refusal says why the channel was closed. It is asked once.
func (c *publishing) refusal() error {
	switch err := <-c.closed; {
	case err == nil:
		return errNotTaken
	case err.Code == amqp.PreconditionFailed && strings.Contains(err.Reason, "message size"):
		return fmt.Errorf("%w: %w", errTooLarge, err)
	default: // a user who may not write, say
		return fmt.Errorf("%w: %w", errNotTaken, err)
	}
}

// close closes the connection. Who publishes after that fails.
func (p *publisher) close() error {
	p.turn <- struct{}{}
	defer p.unlock()
	p.closed = true
	if p.conn == nil || p.conn.IsClosed() {
		return nil
	}
	return p.conn.hangUp()
}

// blockade knows whether the broker has blocked a connection.
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

// since is closed when the connection is blocked, or becomes so.
func (b *blockade) since() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.ch
}
