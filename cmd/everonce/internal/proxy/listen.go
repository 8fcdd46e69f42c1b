package proxy

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"sync"
	"time"
)

// listener hands out clients' connections: guarded where they speak HTTP/1, and after the TLS handshake
// where there is one, so that it is known what they speak.
type listener struct {
	net.Listener
	tls    *tls.Config // nil: none
	within time.Duration

	ctx   context.Context //nolint:containedctx // of the handshakes
	stop  context.CancelFunc
	ready chan net.Conn
	fault chan error
	hands sync.WaitGroup
}

func newListener(ln net.Listener, conf *tls.Config, within time.Duration) *listener {
	l := &listener{Listener: ln, tls: conf, within: within, ready: make(chan net.Conn), fault: make(chan error, 1)}
	l.ctx, l.stop = context.WithCancel(context.Background())
	if conf != nil {
		l.hands.Go(l.accept)
	}
	return l
}

// Accept returns the next connection.
func (l *listener) Accept() (net.Conn, error) {
	if l.tls == nil {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		return &guardedConn{Conn: c}, nil
	}
	select {
	case c := <-l.ready:
		return c, nil
	case err := <-l.fault:
		return nil, err
	case <-l.ctx.Done():
		return nil, net.ErrClosed
	}
}

// Close closes it, and gives up handshakes.
func (l *listener) Close() error {
	l.stop()
	err := l.Listener.Close()
	l.hands.Wait()
	return err
}

func (l *listener) accept() {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			if l.ctx.Err() != nil {
				return
			}
			select { // at a lack of files the server waits a moment, and calls Accept again
			case l.fault <- err:
			case <-l.ctx.Done():
				return
			}
			var temporary interface{ Temporary() bool }
			if !errors.As(err, &temporary) || !temporary.Temporary() {
				return
			}
			continue
		}
		l.hands.Go(func() { l.handshake(c) })
	}
}

func (l *listener) handshake(c net.Conn) {
	t := tls.Server(c, l.tls)
	ctx, cancel := context.WithTimeout(l.ctx, l.within)
	defer cancel()
	err := t.HandshakeContext(ctx)
	ready := net.Conn(t)
	var noTLS tls.RecordHeaderError
	switch {
	case errors.As(err, &noTLS): // to net/http, which gets the same error, and answers a client that speaks HTTP
	case err != nil:
		c.Close() //nolint:errcheck // it is of no use
		return
	case t.ConnectionState().NegotiatedProtocol != "h2":
		ready = &guardedConn{Conn: t}
	}
	select {
	case l.ready <- ready:
	case <-l.ctx.Done():
		c.Close() //nolint:errcheck // it is of no use
	}
}

type tlsStateKey struct{}

// withTLSState is for [http.Server.ConnContext]: net/http sees TLS only in a connection of that type.
func withTLSState(ctx context.Context, c net.Conn) context.Context {
	g, ok := c.(*guardedConn)
	if !ok {
		return ctx
	}
	t, ok := g.Conn.(*tls.Conn)
	if !ok {
		return ctx
	}
	state := t.ConnectionState()
	return context.WithValue(ctx, tlsStateKey{}, &state)
}

// restoreTLS puts back what net/http has not seen.
func restoreTLS(r *http.Request) {
	if state, ok := r.Context().Value(tlsStateKey{}).(*tls.ConnectionState); ok && r.TLS == nil {
		r.TLS = state
	}
}

// lastOnConn reports whether no other request may follow on the connection: see guardedConn.
func lastOnConn(r *http.Request) bool {
	return r.ProtoMajor == 1 && (len(r.TransferEncoding) > 0 || len(r.Header["Upgrade"]) > 0)
}
