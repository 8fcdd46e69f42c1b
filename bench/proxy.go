package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/httponce"
	"github.com/everonce/everonce/httponce/proxy"
	"github.com/everonce/everonce/store/sqlitestore"
)

const (
	proxyConns = 64
	proxyKeys  = 4096 // of operations that are replayed
)

// proxies is a service behind two proxies, over loopback: net/http's bare one, and everonce's on SQLite, where a commit
// is durable when it returns.
type proxies struct {
	store   *sqlitestore.Store
	servers []*http.Server
	bare    *clients
	ours    *clients
}

func overLoopback(ctx context.Context, dir string) ([]*contest, func() error, error) {
	p := &proxies{}
	if err := p.open(ctx, dir); err != nil {
		return nil, nil, errors.Join(err, p.close())
	}
	request := func(c *clients, key func(int64) string, replayed bool) func(context.Context, int64) error {
		return func(_ context.Context, n int64) error { return c.do(key(n), replayed) }
	}
	newKey := func(n int64) string { return httpKey(proxyKeys + n) }
	knownKey := func(n int64) string { return httpKey(n % proxyKeys) }
	bareNew, first := &way{name: "bare: httputil.ReverseProxy", do: request(p.bare, newKey, false)}, &way{name: "ours, durable, first", do: request(p.ours, newKey, false)}
	bareAgain, replay := &way{name: "bare: httputil.ReverseProxy", do: request(p.bare, knownKey, false)}, &way{name: "ours, durable, replay", do: request(p.ours, knownKey, true)}
	for n := range int64(proxyKeys) {
		if err := p.ours.do(httpKey(n), false); err != nil {
			return nil, nil, errors.Join(err, p.close())
		}
	}
	return []*contest{
		{
			store: "SQLite", mode: "proxy, new keys", callers: proxyConns, ways: []*way{bareNew, first},
			targets: []target{first.atLeast(0.6, bareNew, "proxy on SQLite, first: rate × of a bare ReverseProxy")},
		},
		{
			store: "SQLite", mode: "proxy, replay", callers: proxyConns, ways: []*way{bareAgain, replay},
			targets: []target{replay.atLeast(1.8, bareAgain, "proxy on SQLite, replay: rate × of a bare ReverseProxy")},
		},
	}, p.close, nil
}

func (p *proxies) open(ctx context.Context, dir string) (err error) {
	upstream, err := p.serve(ctx, http.HandlerFunc(pay))
	if err != nil {
		return err
	}
	target := &url.URL{Scheme: "http", Host: upstream}
	transport := &http.Transport{MaxIdleConns: 4 * proxyConns, MaxIdleConnsPerHost: 4 * proxyConns, DisableCompression: true}
	// As in the example of net/http/httputil: both proxies send the service the client's address.
	bare := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetXForwarded(); r.SetURL(target) }, Transport: transport}
	if p.bare, err = p.connect(ctx, bare); err != nil {
		return err
	}
	if p.store, err = sqlitestore.Open(ctx, filepath.Join(dir, "proxy.db"), nil); err != nil {
		return err
	}
	recv, err := everonce.NewReceiver(p.store, everonce.Refuse, nil)
	if err != nil {
		return err
	}
	protect, err := httponce.Middleware(recv, byAccount, nil)
	if err != nil {
		return err
	}
	passOn, err := proxy.New(target, nil)
	if err != nil {
		return err
	}
	p.ours, err = p.connect(ctx, protect(passOn))
	return err
}

// serve listens on loopback.
func (p *proxies) serve(ctx context.Context, h http.Handler) (addr string, err error) {
	var listen net.ListenConfig
	ln, err := listen.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	server := &http.Server{Handler: h, ReadHeaderTimeout: time.Minute}
	p.servers = append(p.servers, server)
	go server.Serve(ln) //nolint:errcheck // it ends with Close
	return ln.Addr().String(), nil
}

// connect serves a handler, with a connection for each caller.
func (p *proxies) connect(ctx context.Context, h http.Handler) (*clients, error) {
	addr, err := p.serve(ctx, h)
	if err != nil {
		return nil, err
	}
	c := &clients{idle: make(chan *client, proxyConns)}
	for range proxyConns {
		var dialer net.Dialer
		conn, err := dialer.DialContext(ctx, "tcp", addr)
		if err != nil {
			return c, err
		}
		c.idle <- &client{conn: conn, wire: newWire(addr, sampleRequest), reader: bufio.NewReader(conn)}
	}
	return c, nil
}

func (p *proxies) close() (err error) {
	for _, c := range []*clients{p.bare, p.ours} {
		for c != nil && len(c.idle) > 0 {
			err = errors.Join(err, (<-c.idle).conn.Close())
		}
	}
	for _, s := range p.servers {
		err = errors.Join(err, s.Close())
	}
	if p.store != nil {
		err = errors.Join(err, p.store.Close())
	}
	return err
}

// clients are connections, which ask for little of the processor: what is measured is not they.
type clients struct{ idle chan *client }

type client struct {
	conn   net.Conn
	wire   *wire
	reader *bufio.Reader
	answer fasthttp.Response
}

// do sends a request, whose answer must be marked as replayed, or not.
func (c *clients) do(key string, replayed bool) error {
	cl := <-c.idle
	defer func() { c.idle <- cl }()
	if _, err := cl.conn.Write(cl.wire.with(key)); err != nil {
		return err
	}
	if err := cl.answer.Read(cl.reader); err != nil {
		return err
	}
	if cl.answer.StatusCode() != http.StatusCreated || len(cl.answer.Body()) == 0 {
		return fmt.Errorf("the answer is %d: %s", cl.answer.StatusCode(), cl.answer.Body())
	}
	if got := len(cl.answer.Header.Peek("Idempotent-Replayed")) > 0; got != replayed {
		return fmt.Errorf("replayed is %v, want %v", got, replayed)
	}
	return nil
}
