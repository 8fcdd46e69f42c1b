// Package netcut holds test helpers for a store's connections to its server: [Turns] counts round trips, and a [Line] can
// be cut.
package netcut

import (
	"net"
	"sync/atomic"
	"testing"
)

// Turns counts round trips: what is written after something was read is a new one.
type Turns struct{ n atomic.Int64 }

// Over returns conn, counted.
func (c *Turns) Over(conn net.Conn) net.Conn {
	turn := &turnConn{Conn: conn, count: &c.n}
	turn.answered.Store(true)
	return turn
}

// Of fails the test if fn fails, or makes another number of round trips.
func (c *Turns) Of(t testing.TB, what string, want int64, fn func() error) {
	t.Helper()
	before := c.n.Load()
	if err := fn(); err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	if got := c.n.Load() - before; got != want {
		t.Errorf("%s: %d round trips, want %d", what, got, want)
	}
}

type turnConn struct {
	net.Conn
	count    *atomic.Int64
	answered atomic.Bool
}

func (c *turnConn) Write(b []byte) (int, error) {
	if c.answered.Swap(false) {
		c.count.Add(1)
	}
	return c.Conn.Write(b)
}

func (c *turnConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if n > 0 {
		c.answered.Store(true)
	}
	return n, err
}
