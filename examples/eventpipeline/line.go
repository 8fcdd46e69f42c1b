package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/url"
	"sync"
)

// line is the way of the workers to MongoDB, which can be cut.
type line struct {
	listener net.Listener
	to       string

	mu    sync.Mutex
	away  bool
	conns map[net.Conn]bool
}

// openLine listens for what is meant for the server of a URL, and returns the URL to be used instead.
func openLine(ctx context.Context, mongoURL string) (*line, string, error) {
	u, err := url.Parse(mongoURL)
	if err != nil || u.Scheme != "mongodb" || u.Hostname() == "" {
		return nil, "", fmt.Errorf("%s must be mongodb://host:port/…, one host", mongoVariable) // the URL may hold a password
	}
	to := u.Host
	if u.Port() == "" {
		to = net.JoinHostPort(u.Hostname(), "27017")
	}
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, "", err
	}
	l := &line{listener: listener, to: to, conns: map[net.Conn]bool{}}
	go l.accept(ctx)
	u.Host = listener.Addr().String()
	q := u.Query()
	q.Set("directConnection", "true")
	u.RawQuery = q.Encode()
	return l, u.String(), nil
}

func (l *line) accept(ctx context.Context) {
	for {
		conn, err := l.listener.Accept()
		if err != nil {
			return
		}
		go l.carry(ctx, conn)
	}
}

// carry carries bytes both ways until either side, or the line, is cut.
func (l *line) carry(ctx context.Context, client net.Conn) {
	defer l.hangUp(client)
	if !l.holds(client) {
		return
	}
	var dialer net.Dialer
	server, err := dialer.DialContext(ctx, "tcp", l.to)
	if err != nil {
		return
	}
	defer l.hangUp(server)
	if !l.holds(server) {
		return
	}
	go func() {
		defer l.hangUp(client)
		io.Copy(client, server) //nolint:errcheck // it ends when either hangs up
	}()
	io.Copy(server, client) //nolint:errcheck // as above
}

// holds takes a connection into the line, unless that is cut.
func (l *line) holds(conn net.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.away {
		return false
	}
	l.conns[conn] = true
	return true
}

func (l *line) hangUp(conn net.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.conns, conn)
	conn.Close() //nolint:errcheck // it may be closed already
}

// cut ends all connections, and takes none until mend.
func (l *line) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.away = true
	for conn := range l.conns {
		conn.Close() //nolint:errcheck // as above
	}
}

func (l *line) mend() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.away = false
}

func (l *line) close() error {
	l.cut()
	return l.listener.Close()
}
