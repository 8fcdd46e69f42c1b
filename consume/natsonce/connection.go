package natsonce

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/everonce/everonce"
)

// ErrUnreachable says that no server could be reached, or that JetStream does not answer.
var ErrUnreachable = errors.New("natsonce: the server cannot be reached")

// connectTimeout bounds a connection attempt to one server, and askTimeout a request to JetStream without a deadline.
const (
	connectTimeout = 5 * time.Second
	askTimeout     = 10 * time.Second
	// pingEvery is the interval of pings. A connection on which two pings are not answered is made again. With the
	// default of nats.go, two minutes, a half-open connection would last for six.
	pingEvery = 20 * time.Second
)

var errURL = fmt.Errorf("%w: natsonce: the URL is not a nats://, tls://, ws:// or wss:// URL", everonce.ErrInvalidArgument)

// checkURL returns an error if servers are not URLs. It does not quote them, because they may hold a password.
func checkURL(servers string) error {
	for server := range strings.SplitSeq(servers, ",") {
		u, err := url.Parse(strings.TrimSpace(server))
		if err != nil || u.Host == "" || !slices.Contains([]string{"nats", "tls", "ws", "wss"}, u.Scheme) {
			return errURL
		}
	}
	return nil
}

// connection is a connection with JetStream.
type connection struct {
	*nats.Conn
	js jetstream.JetStream
}

// connect connects. A connection that is lost later is made again, for ever. Meanwhile publishing fails, and nothing
// is buffered to be sent late.
func connect(ctx context.Context, servers, name string, log *slog.Logger, more ...nats.Option) (*connection, error) {
	if err := checkURL(servers); err != nil {
		return nil, err
	}
	options := append([]nats.Option{
		nats.Name(name), nats.Timeout(connectTimeout), nats.PingInterval(pingEvery), nats.MaxReconnects(-1), nats.IgnoreAuthErrorAbort(), nats.ReconnectBufSize(-1),
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) {
			if err != nil {
				log.Warn("natsonce: connection lost", "connection", name, "error", err)
			}
		}),
		nats.ReconnectHandler(func(*nats.Conn) { log.Info("natsonce: reconnected", "connection", name) }),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
			log.Warn("natsonce: the server reports an error", "connection", name, "error", err)
		}),
	}, more...)
	type made struct {
		conn *nats.Conn
		err  error
	}
	done := make(chan made, 1)
	go func() {
		conn, err := nats.Connect(servers, options...)
		done <- made{conn, err}
	}()
	select {
	case m := <-done:
		if m.err != nil {
			return nil, fmt.Errorf("%w: %w", ErrUnreachable, m.err)
		}
		js, err := jetstream.New(m.conn, jetstream.WithDefaultTimeout(askTimeout))
		return &connection{m.conn, js}, err
	case <-ctx.Done():
		go func() {
			if m := <-done; m.err == nil {
				m.conn.Close()
			}
		}()
		return nil, context.Cause(ctx)
	}
}

// hangUp flushes and closes the connection.
func (c *connection) hangUp() error {
	err := c.FlushTimeout(time.Second)
	c.Close()
	if errors.Is(err, nats.ErrConnectionClosed) || errors.Is(err, nats.ErrConnectionReconnecting) || errors.Is(err, nats.ErrTimeout) {
		return nil // the server redelivers messages whose answers it did not get
	}
	return err
}
