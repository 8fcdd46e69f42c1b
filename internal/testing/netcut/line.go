package netcut

import (
	"errors"
	"net"
	"sync/atomic"
)

// Line is the way to a server, which a test can cut to lose an answer.
type Line struct{ next atomic.Int32 }

// Cut says what becomes of what is sent next.
type Cut int32

// The ways to cut.
const (
	Whole  Cut = iota // it arrives, and so does its answer
	Before            // it does not arrive
	After             // it arrives, and its answer does not
)

var errCut = errors.New("wire: the line is cut")

// Over returns conn, which can be cut.
func (l *Line) Over(conn net.Conn) net.Conn { return &lineConn{Conn: conn, line: l} }

// Cut cuts the line at the next write, of whichever connection.
func (l *Line) Cut(how Cut) { l.next.Store(int32(how)) }

type lineConn struct {
	net.Conn
	line *Line
	lost atomic.Bool
}

func (c *lineConn) Write(b []byte) (int, error) {
	switch Cut(c.line.next.Swap(int32(Whole))) {
	case Before:
		c.lost.Store(true)
		c.Conn.Close() //nolint:errcheck // it is lost
		return len(b), nil
	case After:
		c.lost.Store(true)
	}
	return c.Conn.Write(b)
}

// Read waits for the answer that it then loses, so that the server has certainly done what was asked.
func (c *lineConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if c.lost.Load() {
		c.Conn.Close() //nolint:errcheck // it is lost
		return 0, errCut
	}
	return n, err
}
