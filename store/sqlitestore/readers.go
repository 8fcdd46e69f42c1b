package sqlitestore

import (
	"context"
	"errors"
	"sync"

	"github.com/everonce/everonce/internal/sqldb"
)

// readers are connections that only read: they see what was committed, and wait for no writer.
type readers struct {
	open  func() (*rawConn, error)
	slots chan struct{}

	mu     sync.Mutex
	idle   []*rawConn
	closed bool
}

func newReaders(n int, open func() (*rawConn, error)) *readers {
	return &readers{open: open, slots: make(chan struct{}, n)}
}

// do sends calls through one connection. With slow the end of ctx interrupts a statement; reading one
// record is sooner done than that is prepared.
func (r *readers) do(ctx context.Context, slow bool, calls []*sqldb.Call) error {
	select {
	case r.slots <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	defer func() { <-r.slots }()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	conn, err := r.take()
	if err != nil {
		return err
	}
	if !slow {
		ctx = context.Background()
	}
	for _, call := range calls {
		if err := conn.send(ctx, call); err != nil {
			return errors.Join(err, conn.Close())
		}
	}
	return r.put(conn)
}

func (r *readers) take() (*rawConn, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return nil, errClosed
	}
	if n := len(r.idle); n > 0 {
		conn := r.idle[n-1]
		r.idle = r.idle[:n-1]
		return conn, nil
	}
	return r.open()
}

func (r *readers) put(conn *rawConn) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return conn.Close()
	}
	r.idle = append(r.idle, conn)
	return nil
}

func (r *readers) close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	var errs []error
	for _, conn := range r.idle {
		errs = append(errs, conn.Close())
	}
	r.idle = nil
	return errors.Join(errs...)
}
