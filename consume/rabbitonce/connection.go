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

// dialing says how connections are made.
type dialing struct {
	url       string
	tls       *tls.Config
	heartbeat time.Duration
	name      string
}

// ErrUnreachable is wrapped where no connection could be made: nobody listens, or the broker refuses the user.
var ErrUnreachable = errors.New("rabbitonce: the broker can not be reached")

var errURL = fmt.Errorf("%w: rabbitonce: this is no amqp:// or amqps:// URL", everonce.ErrInvalidArgument)

// check refuses a URL without quoting it: it may hold a password.
func (d *dialing) check() error {
	if _, err := amqp.ParseURI(d.url); err != nil {
		return errURL
	}
	return nil
}

// dial makes a connection whose name ends with what it is for.
func (d *dialing) dial(ctx context.Context, purpose string) (*amqp.Connection, error) {
	ctx, cancel := context.WithTimeout(ctx, connectWithin)
	defer cancel()
	properties := amqp.NewConnectionProperties()
	properties.SetClientConnectionName(d.name + " (" + purpose + ")")
	stop := func() bool { return true }
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
		return &boundedConn{Conn: conn, within: 3 * d.heartbeat}, nil
	}
	conn, err := amqp.DialConfig(d.url, config)
	if !stop() && err == nil {
		err = errors.Join(context.Cause(ctx), hangUp(conn))
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnreachable, err)
	}
	return conn, nil
}

// closeWithin bounds the closing of a connection whose broker may not answer.
const closeWithin = 3 * time.Second

// hangUp closes a connection. One that is closed already is no error.
func hangUp(conn *amqp.Connection) error {
	if err := conn.CloseDeadline(time.Now().Add(closeWithin)); err != nil && !errors.Is(err, amqp.ErrClosed) {
		return fmt.Errorf("rabbitonce: closing: %w", err)
	}
	return nil
}

// boundedConn ends a connection that can not be written to: the library's writes have no bound, and a
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
