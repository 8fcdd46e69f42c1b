package rabbitonce

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/everonce/everonce"
)

// connectTimeout bounds a connection attempt with its handshakes.
const connectTimeout = 15 * time.Second

// askTimeout bounds each request on a connection. Tests shorten it.
var askTimeout = 15 * time.Second

// dialing has what is needed to connect.
type dialing struct {
	urls      func(context.Context) ([]string, error)
	tls       *tls.Config
	heartbeat time.Duration
	name      string
	skip      int // brokers that are tried last: they accepted a connection, but did not serve the queue
}

// dialing returns what is needed to connect to url, or to the result of URLs.
func (o *Options) dialing(url string) (dialing, error) {
	d := dialing{urls: o.URLs, tls: o.TLS, heartbeat: o.Heartbeat, name: o.Name}
	if d.urls == nil {
		d.urls = func(context.Context) ([]string, error) { return []string{url}, nil }
	} else if url != "" {
		return d, errTwoURLs
	}
	return d, nil
}

// ErrUnreachable says that no connection could be made: no broker listens, or it refuses the user.
var ErrUnreachable = errors.New("rabbitonce: the broker cannot be reached")

var (
	errNoURL   = fmt.Errorf("%w: rabbitonce: the URL is empty", everonce.ErrInvalidArgument)
	errTwoURLs = fmt.Errorf("%w: rabbitonce: both a URL and Options.URLs are set (leave one of them out)", everonce.ErrInvalidArgument)
	errNoURLs  = fmt.Errorf("%w: rabbitonce: Options.URLs returned no URL", everonce.ErrInvalidArgument)
	errURL     = fmt.Errorf("%w: rabbitonce: the URL is not an amqp:// or amqps:// URL", everonce.ErrInvalidArgument)
	errPlain   = fmt.Errorf("%w: rabbitonce: Options.TLS is set, but the URL is amqp:// (use amqps://)", everonce.ErrInvalidArgument)
)

// broker is the address of a broker.
type broker struct{ host, url string }

// brokers calls URLs. It returns an error for an invalid URL without quoting it: it may hold a password.
func (d *dialing) brokers(ctx context.Context) ([]broker, error) {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	urls, err := d.urls(ctx)
	switch {
	case err != nil:
		return nil, fmt.Errorf("%w: Options.URLs: %w", ErrUnreachable, err)
	case len(urls) == 0:
		return nil, errNoURLs
	}
	all := make([]broker, len(urls))
	for i, url := range urls {
		switch uri, err := amqp.ParseURI(url); {
		case url == "":
			return nil, errNoURL
		case err != nil:
			return nil, errURL
		case d.tls != nil && uri.Scheme != "amqps": // the library would ignore the configuration
			return nil, errPlain
		default:
			all[i] = broker{net.JoinHostPort(uri.Host, strconv.Itoa(uri.Port)), url}
		}
	}
	return all, nil
}

// dial connects to the first broker that accepts. The name of the connection ends with its purpose.
func (d *dialing) dial(ctx context.Context, purpose string) (*link, error) {
	brokers, err := d.brokers(ctx)
	if err != nil {
		return nil, err
	}
	first := d.skip % len(brokers)
	brokers = slices.Concat(brokers[first:], brokers[:first])
	ctx, cancel := context.WithTimeout(ctx, connectTimeout*time.Duration(len(brokers)))
	defer cancel()
	var failed []error
	for i, b := range brokers {
		deadline, _ := ctx.Deadline()
		share, cancel := context.WithTimeout(ctx, min(connectTimeout, time.Until(deadline)/time.Duration(len(brokers)-i))) // a broker that does not answer leaves time for the others
		l, err := d.connect(share, b.url, purpose)
		cancel()
		if err == nil {
			l.host = b.host
			return l, nil
		}
		failed = append(failed, fmt.Errorf("%s: %w", b.host, err))
	}
	return nil, fmt.Errorf("%w: %w", ErrUnreachable, errors.Join(failed...))
}

// connect connects to a broker.
func (d *dialing) connect(ctx context.Context, url, purpose string) (*link, error) {
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
		stop = context.AfterFunc(ctx, func() { conn.Close() }) //nolint:errcheck // this fails the handshake
		l.raw = &boundedConn{Conn: conn, within: 3 * d.heartbeat}
		return l.raw, nil
	}
	conn, err := amqp.DialConfig(url, config)
	l.Connection = conn
	if ended := !stop(); ended && err == nil {
		err = errors.Join(context.Cause(ctx), l.hangUp())
	}
	if err != nil && ctx.Err() != nil {
		err = fmt.Errorf("%w: %w", context.Cause(ctx), err)
	}
	if err != nil {
		return nil, err
	}
	return l, nil
}

// link is a connection that can be closed even if its broker does not answer.
type link struct {
	*amqp.Connection
	raw  *boundedConn
	host string // the broker's
}

// closeTimeout bounds the closing of a connection whose broker may not answer.
const closeTimeout = 3 * time.Second

// hangUp closes the connection. It is no error if the connection is already closed, or if another call is closing it.
// The library's own deadline is not enough, because each heartbeat of the broker extends it.
func (l *link) hangUp() error {
	t := time.AfterFunc(closeTimeout, l.cut)
	defer t.Stop()
	if err := l.Close(); err != nil && !errors.Is(err, amqp.ErrClosed) && !l.IsClosed() {
		return fmt.Errorf("rabbitonce: closing: %w", err)
	}
	return nil
}

// cut closes the connection without the closing handshake.
func (l *link) cut() {
	l.raw.Close() //nolint:errcheck // calls that wait for an answer fail
}

var errUnanswered = errors.New("rabbitonce: the broker did not answer (it may have just started, or the queue has no leader)")

// within closes the connection if fn, which sends a request, waits longer than limit without hearing from the broker.
// The library waits without a bound, and the broker does not answer for a quorum queue without a leader. A large
// message on a slow line does not count as silence.
func (l *link) within(limit time.Duration, fn func() error) error {
	answered, silent := make(chan struct{}), make(chan bool, 1)
	go func() { silent <- l.cutIfSilent(limit, answered) }()
	err := fn()
	close(answered)
	if <-silent && err != nil {
		return fmt.Errorf("%w: %w", errUnanswered, err)
	}
	return err
}

// chatter is more than the size of the heartbeats that may arrive during a wait, in bytes.
const chatter = 1 << 10

func (l *link) cutIfSilent(limit time.Duration, answered <-chan struct{}) (silent bool) {
	late := time.NewTicker(limit)
	defer late.Stop()
	for heard := l.raw.heard.Load(); ; {
		select {
		case <-answered:
			return false
		case <-late.C:
		}
		now := l.raw.heard.Load()
		if now-heard <= chatter {
			l.cut()
			return true
		}
		heard = now
	}
}

// boundedConn limits the time of a write: the library's writes have no bound, and would block for ever if the broker
// does not read.
type boundedConn struct {
	net.Conn
	within time.Duration
	heard  atomic.Int64 // bytes
}

func (c *boundedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.heard.Add(int64(n))
	return n, err
}

func (c *boundedConn) Write(p []byte) (int, error) {
	if err := c.SetWriteDeadline(time.Now().Add(c.within)); err != nil {
		return 0, err
	}
	return c.Conn.Write(p)
}
