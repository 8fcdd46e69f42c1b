package sqlitestore

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"modernc.org/sqlite"

	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/internal/sqldb"
)

// errClosed is the answer of a store that was closed.
var errClosed = errors.New("sqlitestore: the store is closed")

// Statements of the writer itself.
var (
	beginImmediate = &sqldb.Statement{Name: "begin", Text: "BEGIN IMMEDIATE"}
	commit         = &sqldb.Statement{Name: "commit", Text: "COMMIT"}
	rollback       = &sqldb.Statement{Name: "rollback", Text: "ROLLBACK"}
)

// grouper runs writes that come at the same time in shared transactions: one wait for the disk is divided among all of
// them. A write's result is returned only after the commit has returned.
//
// A goroutine exists while there is something to write, and no longer.
type grouper struct {
	turn      *turnstile
	open      func() (*rawConn, error)
	checkFile func() error              // why nothing may be committed
	limit     int                       // of writes in one transaction
	reads     map[*sqldb.Statement]bool // that write nothing, though they answer rows

	mu      sync.Mutex
	queue   []*write
	came    atomic.Int64 // writes that were ever in the queue
	running bool
	closed  bool
	idle    sync.Cond // running has become false

	hurry  chan struct{} // closed where the store's end has waited for the turn long enough
	undone int           // writes that were waited for, and not done

	conn    *rawConn // of the goroutine
	commits atomic.Int64
}

func newGrouper(turn *turnstile, limit int, reads map[*sqldb.Statement]bool, open func() (*rawConn, error), checkFile func() error) *grouper {
	g := &grouper{turn: turn, open: open, checkFile: checkFile, limit: limit, reads: reads, hurry: make(chan struct{})}
	g.idle.L = &g.mu
	return g
}

// write is one write in the queue.
type write struct {
	op   func(context.Context, sqldb.Conn) error
	gone atomic.Bool // its caller has given up
	err  error
	done chan struct{}
}

// do runs op in a transaction that it may share, and returns when that is durable. If ctx ends first it
// returns at once; op may still be run then, if it was about to.
func (g *grouper) do(ctx context.Context, op func(context.Context, sqldb.Conn) error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	w := &write{op: op, done: make(chan struct{})}
	g.mu.Lock()
	if g.closed {
		g.mu.Unlock()
		return errClosed
	}
	g.queue = append(g.queue, w)
	g.came.Add(1)
	start := !g.running
	g.running = true
	g.mu.Unlock()
	if start {
		go g.run()
	}
	select {
	case <-w.done:
		return w.err
	case <-ctx.Done():
		w.gone.Store(true)
		return context.Cause(ctx)
	}
}

// run writes until the queue is empty.
func (g *grouper) run() {
	var batch []*write
	for {
		g.await(len(batch))
		if !g.turn.enterUnless(g.hurry) {
			g.refuse()
			return
		}
		batch = g.next()
		if batch != nil {
			g.together(batch)
		}
		g.turn.leave()
		if batch == nil && g.rest() {
			return
		}
	}
}

// await waits for the callers that were just answered, if they could share the next commit.
func (g *grouper) await(answered int) {
	g.mu.Lock()
	queued := len(g.queue)
	g.mu.Unlock()
	if answered > 1 && queued < g.limit {
		gather(&g.came, answered)
	}
}

// next takes the next batch from the queue.
func (g *grouper) next() []*write {
	g.mu.Lock()
	defer g.mu.Unlock()
	n := min(len(g.queue), g.limit)
	if n == 0 {
		return nil
	}
	batch := g.queue[:n:n]
	g.queue = g.queue[n:]
	return batch
}

// rest ends the goroutine, unless something has come in the meantime.
func (g *grouper) rest() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.queue) > 0 {
		return false
	}
	g.queue = nil
	g.running = false
	g.idle.Broadcast()
	return true
}

// refuse ends the goroutine, and fails what it has not written.
func (g *grouper) refuse() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, w := range g.queue {
		if !w.gone.Load() {
			g.undone++
		}
		w.err = errWriterBusy
		close(w.done)
	}
	g.queue = nil
	g.running = false
	g.idle.Broadcast()
}

// together runs a batch in one transaction. If that fails, for whatever reason, each is run alone: so
// none suffers from its neighbours.
func (g *grouper) together(batch []*write) {
	began, err := g.transaction(batch)
	if err != nil && began && len(batch) > 1 {
		for i := range batch {
			if _, err := g.transaction(batch[i : i+1]); err != nil {
				batch[i].err = err
			}
		}
	} else if err != nil {
		for _, w := range batch {
			w.err = err
		}
	}
	for _, w := range batch {
		close(w.done)
	}
}

// transaction runs writes between BEGIN and COMMIT. On an error nothing of them has taken hold.
func (g *grouper) transaction(batch []*write) (began bool, err error) {
	if g.conn == nil {
		if g.conn, err = g.open(); err != nil {
			return false, err
		}
	}
	ctx := context.Background()
	if err = g.conn.send(ctx, &sqldb.Call{Statement: beginImmediate}); err != nil {
		g.discard(err)
		return false, err
	}
	c := &groupConn{raw: g.conn, reads: g.reads}
	for _, w := range batch {
		if w.gone.Load() {
			continue
		}
		c.wrote = false
		w.err = w.op(ctx, c)
		if err = c.failed; err == nil && c.wrote { // refused in the middle: that must be undone
			err = w.err
		}
		if err != nil {
			break
		}
	}
	if err == nil {
		err = g.checkFile()
	}
	if err == nil {
		g.commits.Add(1)
		if err = g.conn.send(ctx, &sqldb.Call{Statement: commit}); err == nil {
			return true, nil
		}
	}
	// If SQLite has ended the transaction there is nothing to roll back, which is an error too.
	_ = g.conn.send(ctx, &sqldb.Call{Statement: rollback}) //nolint:errcheck // see above
	g.discard(err)
	return true, err
}

// discard closes a connection whose state is not known to be good.
func (g *grouper) discard(err error) {
	var refused *sqlite.Error
	if g.conn.broken || errors.As(err, &refused) && classify(err).Class == sqldb.ClassOther {
		_ = g.conn.Close() //nolint:errcheck // its error has been returned
		g.conn = nil
	}
}

// close ends the writer after what is in its queue, for which it waits no longer than a transaction may wait for
// another.
func (g *grouper) close() error {
	bound := time.AfterFunc(g.turn.limit, func() { close(g.hurry) })
	defer bound.Stop()
	g.mu.Lock()
	g.closed = true
	for g.running {
		g.idle.Wait()
	}
	g.mu.Unlock()
	var err error
	if g.undone > 0 {
		err = fmt.Errorf("%w: close: %d writes were not done: %w", driver.ErrStore, g.undone, errWriterBusy)
	}
	if g.conn != nil {
		err = errors.Join(err, g.conn.Close())
	}
	return err
}

// groupConn is the connection as the writes of one transaction see it.
type groupConn struct {
	raw    *rawConn
	reads  map[*sqldb.Statement]bool
	wrote  bool  // the present one has written
	failed error // a statement failed: what the transaction holds is not to be relied on
}

func (c *groupConn) Send(ctx context.Context, calls ...*sqldb.Call) error {
	for _, call := range calls {
		if err := c.raw.send(ctx, call); err != nil {
			c.failed = err
			return err
		}
		if call.Affected > 0 && !c.reads[call.Statement] {
			c.wrote = true
		}
		if call.Missed() {
			return sqldb.ErrNothingWritten
		}
	}
	return nil
}
