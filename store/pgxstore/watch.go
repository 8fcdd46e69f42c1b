package pgxstore

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/everonce/everonce/driver"
)

// A watcher of a key holds a shared advisory lock on it. A call that ends an attempt tries the same lock, and if it
// cannot get it, it sends a notification with its commit. PostgreSQL makes commits that notify wait for each other, so
// calls must not notify without need.

const (
	// watchesMost bounds the keys that a store watches: PostgreSQL has room for some thousands of locks, which all share.
	watchesMost = 256
	// listenLinger is how long the connection stays open when no caller waits.
	listenLinger = time.Second
	// listenTimeout bounds each statement of the connection.
	listenTimeout = 5 * time.Second
)

// errNoWatch says that a key cannot be watched now: those who wait ask again and again.
var errNoWatch = errors.New("pgxstore: the key cannot be watched now")

func (d *database) watchChannel() string {
	return "everonce_watch_" + strconv.FormatUint(uint64(lockNumber(d.tables.record)), 36) //nolint:gosec // any 64 bits
}

// notifyEnd is [sqlstore.Dialect.Notify].
func (d *database) notifyEnd() string {
	if !d.listen {
		return ""
	}
	return "CASE WHEN state = 1 OR pg_try_advisory_xact_lock(" + d.lockOf("watch", "id") + ") THEN 1 " +
		"WHEN pg_notify('" + d.watchChannel() + "', encode(id, 'hex')) IS NULL THEN 1 ELSE 1 END"
}

// endListener receives the ends of attempts that callers in this process wait for, over one connection. The connection
// is open while a caller waits.
type endListener struct {
	session session
	db      *database
	mu      sync.Mutex
	byID    map[driver.RecordID]*watch
	changed []driver.RecordID // of which a watch has begun or ended since the connection looked
	look    func()            // has the connection look
	open    bool
}

// watch is shared by all callers in this process that wait for one record.
type watch struct {
	begun   chan struct{} // closed when it is known whether there is a watch
	err     error         // why the watch failed; read after begun
	ended   chan struct{} // closed when word came, or may have been lost
	waiters int
}

func (e *endListener) watch(ctx context.Context, id driver.RecordID) (res driver.WatchResult, err error) {
	w, err := e.join(id)
	if err != nil {
		return res, err
	}
	stop := sync.OnceFunc(func() { e.leave(id, w) })
	select {
	case <-w.begun:
		err = w.err
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	if err != nil {
		stop()
		return res, err
	}
	return driver.WatchResult{Ended: w.ended, Stop: stop}, nil
}

func (e *endListener) join(id driver.RecordID) (*watch, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	w := e.byID[id]
	if w == nil {
		if len(e.byID) >= watchesMost {
			return nil, fmt.Errorf("%w: %d are watched", errNoWatch, watchesMost)
		}
		w = &watch{begun: make(chan struct{}), ended: make(chan struct{})}
		e.byID[id] = w
		e.change(id)
	}
	w.waiters++
	if !e.open {
		e.open = true
		go e.listen()
	}
	return w, nil
}

func (e *endListener) leave(id driver.RecordID, w *watch) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if w.waiters--; w.waiters == 0 && e.byID[id] == w {
		delete(e.byID, id)
		e.change(id)
	}
}

// change has the connection look at a key, and check again whether a caller waits. The caller must hold the lock.
func (e *endListener) change(id driver.RecordID) {
	e.changed = append(e.changed, id)
	if e.look != nil {
		e.look()
	}
}

// end ends a watch: because the attempt has ended, or because the watch failed. The caller must hold the lock.
func (e *endListener) end(id driver.RecordID, err error) {
	w := e.byID[id]
	if w == nil {
		return
	}
	delete(e.byID, id)
	select {
	case <-w.begun:
	default:
		w.err = err
		close(w.begun)
	}
	close(w.ended)
	e.change(id)
}

// listen keeps the connection until it is lost, or no caller waits.
func (e *endListener) listen() {
	ctx := context.Background()
	opening, cancel := context.WithTimeout(ctx, listenTimeout)
	err := e.session(opening, func(conn *pgx.Conn) error {
		cancel()
		return e.serve(ctx, conn)
	})
	cancel()
	if err == nil {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	for id := range e.byID {
		e.end(id, fmt.Errorf("%w: %w", errNoWatch, err))
	}
	e.changed, e.look, e.open = nil, nil, false
}

func (e *endListener) serve(ctx context.Context, conn *pgx.Conn) error {
	if err := bounded(ctx, func(ctx context.Context) error {
		_, err := conn.Exec(ctx, "LISTEN "+pgx.Identifier{e.db.watchChannel()}.Sanitize())
		return err
	}); err != nil {
		return err
	}
	held := make(map[driver.RecordID]bool)
	for {
		e.mu.Lock()
		limit := time.Hour // to begin anew does no harm
		if len(e.byID) == 0 {
			limit = listenLinger
		}
		wait, look := context.WithTimeout(ctx, limit)
		changed := e.changed
		e.changed, e.look = nil, look
		e.mu.Unlock()
		for _, id := range changed {
			if err := bounded(ctx, func(ctx context.Context) error { return e.lookAt(ctx, conn, id, held) }); err != nil {
				look()
				return err
			}
		}
		word, err := conn.WaitForNotification(wait)
		over := context.Cause(wait)
		look()
		switch {
		case err == nil:
			e.receive(word.Payload)
		case over == nil:
			return err
		case errors.Is(over, context.DeadlineExceeded) && e.close():
			return nil
		}
	}
}

// close reports whether the connection may end, since no caller waits.
func (e *endListener) close() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.byID) > 0 {
		return false
	}
	e.changed, e.look, e.open = nil, nil, false
	return true
}

func (e *endListener) receive(payload string) {
	var id driver.RecordID
	if n, err := hex.Decode(id[:], []byte(payload)); err != nil || n != len(id) {
		return // it is not ours
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.end(id, nil)
}

// lookAt makes the connection hold the locks of the keys that are watched, and only those. The watch has begun once the
// lock is held and the attempt was seen to run after that: the call that ends the attempt then finds the lock.
func (e *endListener) lookAt(ctx context.Context, conn *pgx.Conn, id driver.RecordID, held map[driver.RecordID]bool) error {
	e.mu.Lock()
	w := e.byID[id]
	e.mu.Unlock()
	lock := "_shared(" + e.db.lockOf("watch", "$1::bytea") + ")"
	ask := func(text string) (answer bool, err error) {
		return answer, conn.QueryRow(ctx, "SELECT "+text, id[:]).Scan(&answer)
	}
	if w == nil {
		if held[id] {
			delete(held, id)
			_, err := ask("pg_advisory_unlock" + lock)
			return err
		}
		return nil
	}
	if !held[id] {
		if got, err := ask("pg_try_advisory_lock" + lock); err != nil {
			return err
		} else if got {
			held[id] = true
		}
	}
	runs, err := ask(e.runs())
	if err != nil {
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case e.byID[id] != w: // it has ended meanwhile, and is looked at again
	case !held[id]: // an attempt ends at this moment
		e.end(id, errNoWatch)
	case runs:
		select {
		case <-w.begun:
		default:
			close(w.begun)
		}
	default:
		e.end(id, nil)
	}
	return nil
}

// runs is the condition that an attempt runs: its record says so, or a transaction whose writes are not visible yet
// holds the key.
func (e *endListener) runs() string {
	return "EXISTS (SELECT FROM " + e.db.tables.record + " WHERE id = $1::bytea AND state = 1) OR EXISTS (SELECT FROM pg_locks " +
		"WHERE locktype = 'advisory' AND objsubid = 1 AND granted AND database = (SELECT oid FROM pg_database WHERE datname = current_database()) " +
		"AND classid::bigint << 32 | objid::bigint = " + e.db.lockOf("record", "$1::bytea") + ")"
}

func bounded(ctx context.Context, call func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, listenTimeout)
	defer cancel()
	return call(ctx)
}
