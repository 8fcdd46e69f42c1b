package sqlsession

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/internal/placed"
	"github.com/everonce/everonce/internal/sqldb"
	"github.com/everonce/everonce/session"
)

// queue makes requests wait while others are executed, and then share a commit. A request that arrives while a
// transaction is free gets it alone, at once.
type queue[Tx any] struct {
	most int // requests in a batch; below 2 there are no batches

	mu      sync.Mutex
	free    int // free transactions
	busy    map[session.ID]bool
	waiting []*waiter[Tx]
}

// waiter is a request that waits for its reply.
type waiter[Tx any] struct {
	ctx    context.Context //nolint:containedctx // the caller's
	c      *session.Command
	work   Work[Tx]
	done   chan struct{}
	answer session.Reply
	err    error // errAlone if the batch did not produce a reply
	failed bool  // the work failed
}

// maxQueueWait is how long a request waits in the queue before it is run alone. A work that sends a request without its
// context waits behind itself.
const maxQueueWait = 30 * time.Second

var errAlone = errors.New("sqlsession: run the request alone")

// batched applies a request, usually together with requests of other callers.
func (s *Store[Tx]) batched(ctx context.Context, c *session.Command, work Work[Tx]) (session.Reply, error) {
	if s.queue.most < 2 || placed.In(ctx) { // other requests must not join the caller's transaction
		return s.once(ctx, c, work)
	}
	a := &waiter[Tx]{ctx: ctx, c: c, work: work, done: make(chan struct{})}
	if s.queue.enter(a) {
		defer s.leave(a)
		return s.once(ctx, c, work)
	}
	patience := time.NewTimer(maxQueueWait)
	defer patience.Stop()
	select {
	case <-a.done:
	case <-ctx.Done():
		if s.queue.withdraw(a) {
			return session.Reply{}, context.Cause(ctx)
		}
		<-a.done
	case <-patience.C:
		if s.queue.withdraw(a) {
			return s.once(ctx, c, work)
		}
		<-a.done
	}
	if a.err == errAlone { //nolint:errorlint // never wrapped
		return s.once(ctx, c, work)
	}
	return a.answer, a.err
}

// enter takes a free transaction, or adds the request to the queue.
func (q *queue[Tx]) enter(a *waiter[Tx]) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.free == 0 || q.busy[a.c.Session] {
		q.waiting = append(q.waiting, a)
		return false
	}
	q.free--
	q.busy[a.c.Session] = true
	return true
}

// withdraw removes a request that has not begun.
func (q *queue[Tx]) withdraw(a *waiter[Tx]) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	at := slices.Index(q.waiting, a)
	if at < 0 {
		return false
	}
	q.waiting = slices.Delete(q.waiting, at, at+1)
	return true
}

// next ends a transaction's requests, and returns the next ones for it.
func (q *queue[Tx]) next(ended ...*waiter[Tx]) []*waiter[Tx] {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, a := range ended {
		delete(q.busy, a.c.Session)
	}
	var batch, rest []*waiter[Tx]
	for i, a := range q.waiting {
		if len(batch) == q.most {
			rest = append(rest, q.waiting[i:]...)
			break
		}
		if q.busy[a.c.Session] {
			rest = append(rest, a)
		} else {
			batch = append(batch, a)
		}
	}
	q.waiting = rest
	for _, a := range batch {
		q.busy[a.c.Session] = true
	}
	if len(batch) == 0 {
		q.free++
	}
	return batch
}

// leave hands the transaction over to waiting requests.
func (s *Store[Tx]) leave(a *waiter[Tx]) {
	if batch := s.queue.next(a); len(batch) > 0 {
		go s.batches(batch)
	}
}

// batches executes one batch after the other, until no request waits.
func (s *Store[Tx]) batches(batch []*waiter[Tx]) {
	for len(batch) > 0 {
		s.together(batch)
		ended := batch
		batch = s.queue.next(ended...)
		for _, a := range ended {
			close(a.done)
		}
	}
}

// together executes requests in one transaction. The first try has no savepoints: if a work fails, all are rolled back,
// and executed again, each behind a savepoint. A request that has no reply then is run alone.
func (s *Store[Tx]) together(batch []*waiter[Tx]) {
	safely := s.failing.Load()
	for {
		began, err := s.attempt(batch, safely)
		switch {
		case err == nil, errors.Is(err, errRefused):
			if safely {
				s.failing.Store(slices.ContainsFunc(batch, func(a *waiter[Tx]) bool { return a.failed }))
			}
			return
		case !began, errors.Is(err, everonce.ErrOutcomeUnknown): // the error applies to all of them
			for _, a := range batch {
				a.answer, a.err = session.Reply{}, err
			}
			return
		case safely, errors.Is(err, everonce.ErrTxTooLong):
			for _, a := range batch {
				a.answer, a.err = session.Reply{}, errAlone
			}
			return
		}
		safely = true
	}
}

// attempt runs the transaction of a batch, in a goroutine that a work may end.
func (s *Store[Tx]) attempt(batch []*waiter[Tx], safely bool) (began bool, err error) {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		err = errFailing
		defer func() { _ = recover() }() //nolint:errcheck // it panics again when it is run alone
		err = s.inTx(context.Background(), "apply", func(ctx context.Context, conn sqldb.Conn, tx Tx) error {
			began = true
			return s.requests(ctx, conn, tx, batch, safely)
		})
	}()
	<-ended
	return began, err
}

// requests executes the requests of a batch. Each has a reply or an error then, unless all are rolled back.
func (s *Store[Tx]) requests(ctx context.Context, conn sqldb.Conn, tx Tx, batch []*waiter[Tx], safely bool) error {
	sessions, ids := make(map[int64]*held, len(batch)), make([]int64, 0, len(batch))
	var all []*held
	asks := make([][]any, len(batch))
	for i, a := range batch {
		a.answer, a.err, a.failed = session.Reply{}, errAlone, false
		id := int64(a.c.Session) //nolint:gosec // see valid
		if sessions[id] == nil {
			h := &held{kept: make(map[int64]kept, 2)}
			sessions[id], all, ids = h, append(all, h), append(ids, id)
		}
		asks[i] = []any{id, signed(a.c.Number), signed(a.c.Mark)}
	}
	lock := s.dialect.Call(s.st.lockAll, s.list(ids)).ForEach(func(from sqldb.Row) error {
		r := new(row)
		err := r.scan(from)
		if h := sessions[r.id]; err == nil {
			h.row, h.before = r, r.Mark
		}
		return err
	})
	first := []*sqldb.Call{lock, s.readingAll(sessions, asks)}
	if s.dialect.MySQL { // see lock
		if err := conn.Send(ctx, lock); err != nil {
			return err
		}
		asks = slices.DeleteFunc(asks, func(ask []any) bool { return sessions[ask[0].(int64)].row == nil }) //nolint:forcetypeassert // see above
		if first = nil; len(asks) > 0 {
			first = append(first, s.readingAll(sessions, asks))
		}
	}
	if err := conn.Send(ctx, first...); err != nil {
		return err
	}
	for _, a := range batch {
		h := sessions[int64(a.c.Session)]       //nolint:gosec // see valid
		if h.row == nil || a.ctx.Err() != nil { // it gets the reason when it is run alone
			continue
		}
		if refusal := s.admit(h.row, a.c.Nonce, a.c.Epoch); refusal != 0 {
			a.answer, a.err = session.Reply{Err: refusal}, errRefused
			continue
		}
		var spoiled error
		a.answer, a.err = s.execute(h, a.c, func() (result []byte, err error) {
			result, err, spoiled = s.callAmong(ctx, conn, tx, a, safely)
			return result, err
		})
		if spoiled != nil {
			return spoiled
		}
	}
	calls := s.writingAll(all)
	if len(calls) == 0 {
		return errRefused
	}
	return conn.Send(ctx, calls...)
}

// callAmong calls the work of one request among others. spoiled ends the transaction.
func (s *Store[Tx]) callAmong(ctx context.Context, conn sqldb.Conn, tx Tx, a *waiter[Tx], safely bool) (result []byte, err, spoiled error) {
	ctx = &amongOthers{ctx, a.ctx}
	call := s.dialect.Call
	if !safely {
		if result, err = a.work(ctx, tx, a.c.Payload); err == nil {
			if s.dialect.MySQL { // after a rollback by the server the transaction is over, and the next work would commit alone
				alive := call(s.st.alive)
				alive.Must = true
				spoiled = conn.Send(ctx, alive)
			}
			return result, spoiled, spoiled
		}
		if s.retryable(err) {
			return nil, err, err
		}
		return nil, err, errFailing
	}
	if err := conn.Send(ctx, call(savepoint)); err != nil {
		return nil, err, err
	}
	result, err = a.callRecovered(ctx, tx)
	if err == nil {
		if err = conn.Send(ctx, call(release)); err == nil {
			return result, nil, nil
		}
		err = errAlone // its transaction would not have committed: the caller gets that error when the request is run alone
	}
	if s.retryable(err) {
		return nil, err, err
	}
	a.failed = true
	return nil, err, conn.Send(ctx, call(rollback), call(release)) // which proves that the transaction is alive
}

// Statements that only a driver interprets: they have no arguments, nor names of tables.
var (
	savepoint = &sqldb.Statement{Name: "session_savepoint", Text: "SAVEPOINT everonce_session", Rides: true}
	release   = &sqldb.Statement{Name: "session_release", Text: "RELEASE SAVEPOINT everonce_session"}
	rollback  = &sqldb.Statement{Name: "session_rollback", Text: "ROLLBACK TO SAVEPOINT everonce_session"}
)

// retryable reports whether the database asks for the transaction to be run again.
func (s *Store[Tx]) retryable(err error) bool {
	return s.receiver.Store().ClassifyTx(err) == driver.TxErrorRetry
}

// callRecovered calls the work, and catches its panic: the request panics again when it is run alone.
func (a *waiter[Tx]) callRecovered(ctx context.Context, tx Tx) (result []byte, err error) {
	err = errAlone                   //nolint:wastedassign // it is what is left after a panic
	defer func() { _ = recover() }() //nolint:errcheck // see above
	return a.work(ctx, tx, a.c.Payload)
}

var errFailing = errors.New("sqlsession: a work failed in a transaction with others")

// amongOthers is the context of a work in a batch: it has the caller's values, and ends with the transaction. Ending
// with the caller's context could close the connection, and fail all the others.
type amongOthers struct {
	context.Context
	caller context.Context //nolint:containedctx // for its values
}

func (c *amongOthers) Value(key any) any {
	if v := c.Context.Value(key); v != nil {
		return v
	}
	return c.caller.Value(key)
}
