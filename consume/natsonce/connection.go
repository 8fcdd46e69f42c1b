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

// ErrUnreachable says that no connection could be made, or that JetStream does not answer by it.
var ErrUnreachable = errors.New("natsonce: the server cannot be reached")

// connectTimeout bounds the making of a connection to one server; askTimeout an answer of JetStream, where the context does not.
const (
	connectTimeout = 5 * time.Second
	askTimeout     = 10 * time.Second
	// pingEvery is how often the server is asked whether it is there. A connection without an answer to two is made again: nats.go's
	// own two minutes would leave a half-open one for six.
	pingEvery = 20 * time.Second
)

var errURL = fmt.Errorf("%w: natsonce: the URL is not a nats://, tls://, ws:// or wss:// URL", everonce.ErrInvalidArgument)

// checkURL refuses what is no URL without quoting it: it may hold a password.
func checkURL(servers string) error {
	for server := range strings.SplitSeq(servers, ",") {
		u, err := url.Parse(strings.TrimSpace(server))
		if err != nil || u.Host == "" || !slices.Contains([]string{"nats", "tls", "ws", "wss"}, u.Scheme) {
			return errURL
		}
	}
	return nil
}

// connection is what everything here needs.
type connection struct {
	*nats.Conn
	js jetstream.JetStream
}

// connect makes a connection. One that is lost later is made again for ever; what would have been sent meanwhile fails, and is not kept
// to be sent when nobody expects it any more.
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

// hangUp sends what is on its way, and closes the connection.
func (c *connection) hangUp() error {
	err := c.FlushTimeout(time.Second)
	c.Close()
	if errors.Is(err, nats.ErrConnectionClosed) || errors.Is(err, nats.ErrConnectionReconnecting) || errors.Is(err, nats.ErrTimeout) {
		return nil // the server delivers again what it did not hear of
	}
	return err
}
