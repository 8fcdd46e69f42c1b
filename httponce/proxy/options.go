package proxy

import (
	"cmp"
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/httponce/internal/wire"
	"github.com/everonce/everonce/internal/socketurl"
)

// Options configure a proxy. The zero value of each field means its default.
type Options struct {
	// KeyHeader is the request header with the key, the same as the middleware's. Default Idempotency-Key.
	KeyHeader string
	// DownstreamKey replaces the client's key by one made of scope and key ([everonce.Attempt.DownstreamKey]), for an
	// upstream that honours keys itself, and would take equal keys of two clients for one. Default: the key is passed on
	// unchanged, as it always is without an attempt, because its method takes no key or its route failed open.
	DownstreamKey bool
	// UpstreamHost sends the upstream's own name as Host. Default: the Host of the request.
	UpstreamHost bool
	// TrustForwarded keeps the Forwarded and X-Forwarded-… headers of the request, and adds to X-Forwarded-For. Set it
	// only if every request comes through a proxy that sets them. Default: they are replaced.
	TrustForwarded bool

	// ConnectTimeout bounds connecting to the upstream, and then the TLS handshake. Default 5 s.
	ConnectTimeout time.Duration
	// IdleTimeout is how long an unused connection to the upstream is kept. It must be shorter than the upstream's own:
	// the outcome of a request on a connection that the upstream is closing is unknown. Default 1 s; negative: no
	// connection is used twice.
	IdleTimeout time.Duration
	// MaxIdle bounds the unused connections that are kept. Default 256.
	MaxIdle int
	// TLS is the configuration for an https upstream. Default: the system's roots.
	TLS *tls.Config

	// ProblemBase is the base of the types of problems, the same as the middleware's. Default: this project's
	// documentation.
	ProblemBase string
	// StripeErrors adds the member error in Stripe's form to each problem. Set it if the middleware has the profile
	// ProfileStripe.
	StripeErrors bool
	// Log gets the reason why a request was not answered. Default [slog.Default].
	Log *slog.Logger
}

const (
	defaultConnectTimeout = 5 * time.Second
	defaultIdleTimeout    = time.Second
	defaultMaxIdle        = 256
)

func (o *Options) withDefaults() (Options, error) {
	var c Options
	if o != nil {
		c = *o
	}
	c.KeyHeader = http.CanonicalHeaderKey(cmp.Or(c.KeyHeader, wire.DefaultKeyHeader))
	c.ProblemBase = cmp.Or(c.ProblemBase, wire.DefaultProblemBase)
	c.ConnectTimeout = cmp.Or(c.ConnectTimeout, defaultConnectTimeout)
	c.IdleTimeout = cmp.Or(c.IdleTimeout, defaultIdleTimeout)
	c.MaxIdle = cmp.Or(c.MaxIdle, defaultMaxIdle)
	if c.Log == nil {
		c.Log = slog.Default()
	}
	if err := wire.CheckKeyHeader(c.KeyHeader); err != nil {
		return c, fmt.Errorf("%w: %w", everonce.ErrInvalidArgument, err)
	}
	if c.ConnectTimeout < 0 || c.MaxIdle < 0 {
		return c, fmt.Errorf("%w: ConnectTimeout and MaxIdle must not be negative", everonce.ErrInvalidArgument)
	}
	if err := wire.CheckProblemBase(c.ProblemBase); err != nil {
		return c, fmt.Errorf("%w: %w", everonce.ErrInvalidArgument, err)
	}
	return c, nil
}

// problems returns the form of the proxy's own problems.
func (o *Options) problems() wire.Form {
	return wire.Form{Base: o.ProblemBase, Stripe: o.StripeErrors}
}

// transport returns what requests go out by: to one Unix domain socket, if there is one.
func (o *Options) transport(socket string) http.RoundTripper {
	dialer := &net.Dialer{Timeout: o.ConnectTimeout, KeepAlive: 15 * time.Second}
	return &onceTransport{handshake: o.ConnectTimeout, base: &http.Transport{
		DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			if socket != "" {
				network, addr = socketurl.Scheme, socket
			}
			c, err := dialer.DialContext(ctx, network, addr)
			if err != nil {
				return nil, err
			}
			return &countedConn{Conn: c, made: time.Now()}, nil
		},
		TLSClientConfig:       o.TLS.Clone(),
		TLSHandshakeTimeout:   o.ConnectTimeout,
		ForceAttemptHTTP2:     true,
		DisableCompression:    true, // an answer goes on as it came
		DisableKeepAlives:     o.IdleTimeout < 0,
		IdleConnTimeout:       max(0, o.IdleTimeout),
		MaxIdleConns:          o.MaxIdle,
		MaxIdleConnsPerHost:   o.MaxIdle,
		ExpectContinueTimeout: time.Second,
	}}
}
