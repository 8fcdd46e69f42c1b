package e2e

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
)

// lossyNet dials real connections, and cuts them: a share of the requests anywhere in their bytes, and a share of the
// answers. A request that was cut off did not arrive; if its answer was cut off, it was done.
type lossyNet struct {
	share float64

	mu   sync.Mutex
	draw *rand.Rand

	writes, requestsCut, answersCut atomic.Int64
}

func newLossyNet(seed uint64, share float64) *lossyNet {
	return &lossyNet{share: share, draw: rand.New(rand.NewPCG(seed, 1))}
}

// lose tells whether something is lost, and where in n bytes.
func (l *lossyNet) lose(n int) (at int, lost bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	lost = l.draw.Float64() < l.share
	return l.draw.IntN(n), lost
}

// dial is for http.Transport.
func (l *lossyNet) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	var d net.Dialer
	c, err := d.DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	return &lossyConn{TCPConn: c.(*net.TCPConn), net: l}, nil
}

var errCut = errors.New("the network cut the connection")

// lossyConn is a client's connection. A write is a whole request: they are small here. The reads after it are its
// answer, until the next write.
type lossyConn struct {
	*net.TCPConn
	net *lossyNet

	mu       sync.Mutex
	answered bool // the fate of this request's answer is drawn
}

func (c *lossyConn) Write(p []byte) (int, error) {
	c.net.writes.Add(1)
	c.mu.Lock()
	c.answered = false
	c.mu.Unlock()
	at, lost := c.net.lose(len(p))
	if !lost {
		return c.TCPConn.Write(p)
	}
	c.net.requestsCut.Add(1)
	n, err := c.TCPConn.Write(p[:at])
	c.cut(at)
	return n, errors.Join(errCut, err)
}

func (c *lossyConn) Read(p []byte) (int, error) {
	n, err := c.TCPConn.Read(p)
	if n == 0 {
		return n, err
	}
	c.mu.Lock()
	drawn := c.answered
	c.answered = true
	c.mu.Unlock()
	if drawn {
		return n, err
	}
	at, lost := c.net.lose(n)
	if !lost {
		return n, err
	}
	c.net.answersCut.Add(1)
	c.cut(at)
	return at, errCut
}

// cut ends the connection: half of them with a reset, which also drops what is on its way.
func (c *lossyConn) cut(at int) {
	if at%2 == 0 {
		_ = c.SetLinger(0) //nolint:errcheck // it ends one way or the other
	}
	_ = c.Close() //nolint:errcheck // as above
}
