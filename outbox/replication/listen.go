package replication

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/internal/retry"
)

// listener is one call of [Listen].
type listener struct {
	config *pgx.ConnConfig
	table  string
	set    Options
	heard  chan struct{}

	mu     sync.Mutex
	status Status
}

// Listen calls wake after each commit that inserted into a table, until ctx ends, and then returns nil. The table is
// named as in SQL: see Table of outbox.Outbox. Listen opens its own connections with config, unchanged; the role needs
// the attribute REPLICATION, and the server wal_level = logical.
//
// Commits that follow each other within milliseconds are one call. Listen reconnects if the connection is lost, with
// growing pauses, and calls wake after each connection, because transactions may have committed meanwhile. If it cannot
// go on, it logs and returns an error, and the relay then finds events by polling: [ErrRetained], [ErrRefused], and
// [everonce.ErrInvalidArgument] before anything was sent.
func Listen(ctx context.Context, config *pgx.ConnConfig, table string, wake func(), opts *Options) error {
	set, err := opts.complete()
	if err != nil {
		return err
	}
	if config == nil || table == "" || wake == nil {
		return fmt.Errorf("replication: %w: the config, the table or wake is missing", everonce.ErrInvalidArgument)
	}
	l := &listener{config: config.Copy(), table: table, set: set, heard: make(chan struct{}, 1)}
	ctx, end := context.WithCancel(ctx)
	var waking sync.WaitGroup
	defer waking.Wait()
	defer end()
	waking.Go(func() { l.wake(ctx, wake) })
	for failures := 1; ; failures++ {
		err := l.session(ctx, func() { failures = 0 })
		if errors.Is(err, ErrRetained) {
			err = errors.Join(err, l.drop(ctx))
		}
		l.observe(func(s *Status) { s.Listening, s.Err = false, err })
		switch {
		case errors.Is(err, ErrRetained), errors.Is(err, ErrRefused):
			l.set.Log.Error("replication: listening has ended; the relay goes on by polling", "error", err)
			return err
		case ctx.Err() != nil:
			return nil
		}
		l.set.Log.Warn("replication: the connection failed; connecting again, and the relay polls meanwhile", "error", err)
		if retry.Pause(ctx, retry.Within(100*time.Millisecond, 30*time.Second, failures)) != nil {
			return nil
		}
	}
}

// wakeEvery is the least time between two wakes: a relay finds all events that arrived meanwhile at once.
const wakeEvery = 2 * time.Millisecond

// wake calls wake after a report of a commit, but not more often than wakeEvery.
func (l *listener) wake(ctx context.Context, wake func()) {
	for {
		select {
		case <-l.heard:
			wake()
		case <-ctx.Done():
			return
		}
		if retry.Pause(ctx, wakeEvery) != nil {
			return
		}
	}
}

func (l *listener) hear() {
	select {
	case l.heard <- struct{}{}:
	default:
	}
}

func (l *listener) observe(change func(*Status)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	change(&l.status)
	if l.set.Observe != nil {
		l.set.Observe(l.status)
	}
}

// session listens on one connection, until it is lost.
func (l *listener) session(ctx context.Context, listening func()) error {
	slot := l.set.Slot
	if slot == "" { // a new name: the server may not have noticed yet that the last connection is gone
		slot = "everonce_" + strings.ToLower(rand.Text())
	}
	publication, from, err := l.prepare(ctx, slot)
	if err != nil {
		return wrapRefused(err)
	}
	ctx, end := context.WithCancelCause(ctx)
	var guarding sync.WaitGroup
	defer guarding.Wait()
	defer end(nil)
	guarding.Go(func() { l.guard(ctx, slot, end) }) // a slot holds back WAL while it is being created, too

	err = l.listen(ctx, slot, publication, from, listening)
	if over := context.Cause(ctx); errors.Is(over, ErrRetained) {
		return over
	}
	return wrapRefused(err)
}

// listen connects, creates the slot if needed, and reads from it.
func (l *listener) listen(ctx context.Context, slot, publication string, from pglogrepl.LSN, listening func()) error {
	conn, err := l.connect(ctx)
	if err != nil {
		return err
	}
	defer hangUp(ctx, conn.Close)
	// Creating a slot waits for the transactions that are open now.
	_, err = pglogrepl.CreateReplicationSlot(ctx, conn, slot, "pgoutput", pglogrepl.CreateReplicationSlotOptions{
		Temporary: l.set.Slot == "", SnapshotAction: "NOEXPORT_SNAPSHOT", Mode: pglogrepl.LogicalReplication,
	})
	if kept := l.set.Slot != "" && hasCode(err, duplicateObject); err != nil && !kept {
		return err
	}
	names := strings.ReplaceAll(pgx.Identifier{publication}.Sanitize(), "'", "''")
	err = pglogrepl.StartReplication(ctx, conn, slot, from, pglogrepl.StartReplicationOptions{
		Mode: pglogrepl.LogicalReplication, PluginArgs: []string{"proto_version '1'", "publication_names '" + names + "'"},
	})
	if err != nil {
		return err
	}
	listening()
	l.observe(func(s *Status) { s.Listening, s.Err = true, nil })
	l.hear() // for transactions that committed before
	return l.stream(ctx, conn)
}

// connect opens a replication connection.
func (l *listener) connect(ctx context.Context) (*pgconn.PgConn, error) {
	config := l.config.Config.Copy()
	config.RuntimeParams["replication"] = "database"
	return pgconn.ConnectConfig(ctx, config)
}

// hangUp closes a connection, whether ctx has ended or not.
func hangUp(ctx context.Context, closing func(context.Context) error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	_ = closing(ctx) //nolint:errcheck // the connection is no longer used
}

// SQLSTATEs.
const (
	duplicateObject       = "42710"
	insufficientPrivilege = "42501"
	uniqueViolation       = "23505"
)

func hasCode(err error, code string) bool {
	var server *pgconn.PgError
	return errors.As(err, &server) && server.Code == code
}

// wrapRefused wraps an error that trying again does not mend in ErrRefused, with advice.
func wrapRefused(err error) error {
	if hasCode(err, insufficientPrivilege) {
		return fmt.Errorf("%w: the role may not (it needs REPLICATION, and the table or an existing Options.Publication): %w", ErrRefused, err)
	}
	return err
}
