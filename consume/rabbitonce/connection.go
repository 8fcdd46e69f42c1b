package rabbitonce

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/everonce/everonce"
)

// connectWithin bounds the making of a connection, handshakes included.
const connectWithin = 15 * time.Second

// askWithin bounds the questions that are asked on it then. Tests are less patient.
var askWithin = 15 * time.Second

// dialing says how connections are made.
type dialing struct {
	url       string
	tls       *tls.Config
	heartbeat time.Duration
	name      string
}

// ErrUnreachable says that no connection could be made: nobody listens, or the broker refuses the user.
var ErrUnreachable = errors.New("rabbitonce: the broker cannot be reached")

var (
	errNoURL = fmt.Errorf("%w: rabbitonce: the URL is empty", everonce.ErrInvalidArgument)
	errURL   = fmt.Errorf("%w: rabbitonce: this is no amqp:// or amqps:// URL", everonce.ErrInvalidArgument)
	errPlain = fmt.Errorf("%w: rabbitonce: Options.TLS is set, and the URL is amqp://, which is not encrypted: it must be amqps://", everonce.ErrInvalidArgument)
)

// check refuses a URL without quoting it: it may hold a password.
func (d *dialing) check() error {
	switch uri, err := amqp.ParseURI(d.url); {
	case d.url == "":
		return errNoURL
	case err != nil:
		return errURL
	case d.tls != nil && uri.Scheme != "amqps": // the library would leave the configuration unused
		return errPlain
	}
	return nil
}

// dial makes a connection whose name ends with what it is for.
func (d *dialing) dial(ctx context.Context, purpose string) (*link, error) {
	ctx, cancel := context.WithTimeout(ctx, connectWithin)
	defer cancel()
	properties := amqp.NewConnectionProperties()
	properties.SetClientConnectionName(d.name + " (" + purpose + ")")
	stop := func() bool { return true }
	l := &link{}
	config := amqp.Config{Heartbeat: d.heartbeat, Properties: properties}
	if d.tls != nil {
		config.TLSClientConfig = d.tls.Clone()
	}
	config.Dial = func(network, address string) (net.Conn, error) {
		conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
		if err != nil {
			return nil, err
		}
		deadline, _ := ctx.Deadline()
		if err := conn.SetDeadline(deadline); err != nil { // the library clears it after its handshake
			return nil, errors.Join(err, conn.Close())
		}
		stop = context.AfterFunc(ctx, func() { conn.Close() }) //nolint:errcheck // the handshake fails by it
		l.raw = conn
		return &boundedConn{Conn: conn, within: 3 * d.heartbeat}, nil
	}
	conn, err := amqp.DialConfig(d.url, config)
	l.Connection = conn
	if ended := !stop(); ended && err == nil {
		err = errors.Join(context.Cause(ctx), l.hangUp())
	}
	if err != nil && ctx.Err() != nil {
		err = fmt.Errorf("%w: %w", context.Cause(ctx), err)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnreachable, err)
	}
	return l, nil
}

// link is a connection that can be ended although its broker does not answer.
type link struct {
	*amqp.Connection
	raw net.Conn
}

// closeWithin bounds the closing of a connection whose broker may not answer.
const closeWithin = 3 * time.Second

// hangUp closes the connection. One that is closed already, or that another call is closing, is no error. The library's own deadline
// does not bound that: what the broker sends meanwhile, a heartbeat, moves it.
func (l *link) hangUp() error {
	t := time.AfterFunc(closeWithin, l.cut)
	defer t.Stop()
	if err := l.Close(); err != nil && !errors.Is(err, amqp.ErrClosed) && !l.IsClosed() {
		return fmt.Errorf("rabbitonce: closing: %w", err)
	}
	return nil
}

// cut ends the connection without a word.
func (l *link) cut() {
	l.raw.Close() //nolint:errcheck // what waits for an answer fails by it
}

var errUnanswered = errors.New("rabbitonce: the broker has not answered: it has just started, or the queue has no leader")

// within ends the connection when fn, which asks the broker something, takes too long: the library waits without a
// bound, and of a quorum queue without a leader the broker answers nothing.
func (l *link) within(limit time.Duration, fn func() error) error {
	t := time.AfterFunc(limit, l.cut)
	err := fn()
	if !t.Stop() && err != nil {
		return fmt.Errorf("%w: %w", errUnanswered, err)
	}
	return err
}

// boundedConn ends a connection that cannot be written to: the library's writes have no bound, and a
// broker that does not read would hold them for ever.
type boundedConn struct {
	net.Conn
	within time.Duration
}

func (c *boundedConn) Write(p []byte) (int, error) {
	if err := c.SetWriteDeadline(time.Now().Add(c.within)); err != nil {
		return 0, err
	}
	return c.Conn.Write(p)
}
