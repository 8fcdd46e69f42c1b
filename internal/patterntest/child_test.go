package patterntest

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/consume"
	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/inbox"
	"github.com/everonce/everonce/outbox"
	"github.com/everonce/everonce/store/mysqlstore"
	"github.com/everonce/everonce/store/pgxstore"
	"github.com/everonce/everonce/store/sqlitestore"
)

const childEnv = "EVERONCE_PATTERNTEST_CHILD"

// childSpec is what a test tells a process that runs a relay and a worker until its standard input ends, or it dies.
type childSpec struct {
	SQLite           string // a file, or
	Postgres, Schema string // or
	MariaDB          string // a URL
	Sink             string // the file to which events are published: a line for each, which survives the process
	DieAfterSend     int    // the process kills itself after so many events were sent, before any of that call is marked; 0 is never
	DieInHandler     int    // or when so many handlers have written their effect, before the commit
	Socket           string // if set, it serves sessions there, in place of relay and worker: so many answers are sent, or so many effects written
}

// killLease is the lease of everything in these processes: the claims of a dead one end that much later.
const killLease = 250 * time.Millisecond

func runChild(raw string) error {
	var spec childSpec
	if err := json.Unmarshal([]byte(raw), &spec); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin) //nolint:errcheck // its end is what is waited for
		cancel()
	}()
	if spec.SQLite != "" {
		store, err := sqlitestore.Open(ctx, spec.SQLite, nil)
		if err != nil {
			return err
		}
		defer store.Close()
		return relayAndWork(ctx, spec, store, func(ctx context.Context, tx *sql.Tx, text string, args ...any) error {
			_, err := tx.ExecContext(ctx, text, args...)
			return err
		})
	}
	if spec.MariaDB != "" {
		db, err := openMariaDB(spec.MariaDB)
		if err != nil {
			return err
		}
		defer db.Close()
		store, err := mysqlstore.New(db, nil)
		if err != nil {
			return err
		}
		return relayAndWork(ctx, spec, store, func(ctx context.Context, tx *sql.Tx, text string, args ...any) error {
			_, err := tx.ExecContext(ctx, numbered.ReplaceAllString(text, "?"), args...)
			return err
		})
	}
	pool, err := pgxpool.New(ctx, spec.Postgres)
	if err != nil {
		return err
	}
	defer pool.Close()
	store, err := pgxstore.New(pool, &pgxstore.Options{Schema: spec.Schema})
	if err != nil {
		return err
	}
	return relayAndWork(ctx, spec, store, func(ctx context.Context, tx pgx.Tx, text string, args ...any) error {
		_, err := tx.Exec(ctx, text, args...)
		return err
	})
}

// die ends this process as a kill does.
func die() {
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL) //nolint:errcheck // it does not return
	select {}
}

func relayAndWork[Tx any](ctx context.Context, spec childSpec, store driver.TxStore[Tx], exec func(ctx context.Context, tx Tx, text string, args ...any) error) error {
	receiver, err := everonce.NewTxReceiver(store, nil)
	if err != nil {
		return err
	}
	if spec.Socket != "" {
		return serveSessions(ctx, spec, receiver, exec)
	}
	box, err := outbox.New(receiver, nil)
	if err != nil {
		return err
	}
	in, err := inbox.New(receiver, "billing", killInbox())
	if err != nil {
		return err
	}
	sink, err := os.OpenFile(spec.Sink, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer sink.Close()
	note := func(kind, id string) error { // each line also tells the parent
		text := fmt.Appendf(nil, "%s %s\n", kind, id)
		if _, err := sink.Write(text); err != nil {
			return err
		}
		_, err := os.Stdout.Write([]byte{'.'})
		return err
	}
	var sent, handled atomic.Int64
	retry := quick
	retry.Limit = 1000 // kills are counted too
	relay, err := box.Relay(outbox.One(1, func(_ context.Context, e *outbox.Event) error {
		if err := note("event", e.ID+" "+e.Key+" "+string(e.Payload)); err != nil {
			return err
		}
		if sent.Add(1) == int64(spec.DieAfterSend) {
			die()
		}
		return nil
	}), &outbox.RelayOptions{Batch: 8, Lease: killLease, Poll: 50 * time.Millisecond, Retry: retry})
	if err != nil {
		return err
	}
	worker, err := in.Worker(inbox.Handler[Tx]{Handle: func(ctx context.Context, tx Tx, m *consume.Message) error {
		if err := note("handler", m.ID); err != nil {
			return err
		}
		if err := exec(ctx, tx, "INSERT INTO effects (name) VALUES ($1)", m.ID); err != nil {
			return err
		}
		if handled.Add(1) == int64(spec.DieInHandler) {
			die()
		}
		return box.Publish(ctx, tx, outbox.Event{Topic: "billed", Payload: []byte(m.ID)})
	}}, &inbox.WorkerOptions{Concurrency: 2, Lease: killLease, Poll: 50 * time.Millisecond, Retry: retry})
	if err != nil {
		return err
	}
	ended := make(chan error, 2)
	go func() { ended <- relay.Run(ctx) }()
	go func() { ended <- worker.Run(ctx) }()
	return errors.Join(<-ended, <-ended)
}

// killInbox are the options of the inbox on both sides: the ID begins with the order key.
func killInbox() *inbox.Options {
	return &inbox.Options{OrderKey: func(m *consume.Message) string { return m.Subject }, Type: func(*consume.Message) string { return "order" }}
}
