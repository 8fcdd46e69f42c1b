package sqlsession

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/internal/placed"
	"github.com/everonce/everonce/internal/retry"
	"github.com/everonce/everonce/internal/sqldb"
	"github.com/everonce/everonce/session"
)

// Options are the options of a [Store]. The zero value of each field is its default.
type Options struct {
	// Wait is how long a command waits while another one of its session is executed, as is common for a client that sends
	// many at once. After it the command is refused with [session.ErrInProgress]. It holds no connection meanwhile. On
	// SQLite all transactions run one after the other, and Wait is not used. A negative Wait refuses at once. Default 1 s.
	Wait time.Duration
	// Batch is the largest number of requests of this Store that share a commit. No request waits for others to arrive: a
	// request that finds a free transaction (see Batches) gets it alone and at once, and those that arrive meanwhile share
	// the next one. Each takes effect, or fails, independently, as without batches. Their works run one after the other,
	// and the locks of all are held until the commit: batches pay if works are short and commits are the main cost. Works
	// that lock the same rows in different orders may deadlock, after which they are run again. 1 is a commit for each.
	// Default 64 on SQLite, where all transactions run one after the other, and 1 elsewhere.
	Batch int
	// Batches is how many transactions this Store uses for requests at the same time, if Batch is above 1. Default 2; on
	// SQLite it is always 1.
	Batches int
}

const (
	defaultWait    = time.Second
	defaultBatch   = 64 // on SQLite
	defaultBatches = 2
	maxBatch       = 1024
)

// batches returns Batch and Batches with their defaults.
func (o *Options) batches(d *sqldb.Dialect) (batch, batches int) {
	if d.SkipLocked == "" { // SQLite
		return cmp.Or(o.Batch, defaultBatch), 1
	}
	return cmp.Or(o.Batch, 1), cmp.Or(o.Batches, defaultBatches)
}

// Work executes a request: its writes in tx commit with its result. It may be called again, after an earlier call was
// rolled back. In a batch ctx has the values of Apply's context, and ends with the transaction. It must not end the
// transaction. An error rolls back, and is returned by [Store.Apply].
type Work[Tx any] = session.Work[Tx]

// Store keeps client sessions in tables beside the store of a receiver. Tx is the handle of the application's
// transactions. It is safe for concurrent use.
type Store[Tx any] struct {
	receiver *everonce.TxReceiver[Tx]
	db       sqldb.DB[Tx]
	dialect  *sqldb.Dialect
	config   session.Config
	lease    int64 // in microseconds
	wait     time.Duration
	schema   sqldb.Schema
	st       *statements
	queue    queue[Tx]
	failing  atomic.Bool // works failed in the last batch
	owners   owners
}

// New returns the sessions beside the receiver's store, which must be in a SQL database: store/pgxstore,
// store/mysqlstore or store/sqlitestore. All processes should have the same config; its Name is not used, because the
// store's prefix distinguishes the tables. It does no I/O. The error wraps [everonce.ErrInvalidArgument] or
// [session.ErrConfig].
func New[Tx any](receiver *everonce.TxReceiver[Tx], config session.Config, opts *Options) (*Store[Tx], error) {
	if receiver == nil {
		return nil, fmt.Errorf("sqlsession: %w: the receiver is nil", everonce.ErrInvalidArgument)
	}
	db, ok := sqldb.Of(receiver.Store())
	if !ok {
		return nil, fmt.Errorf("sqlsession: %w: the receiver's store is not in a SQL database (use store/pgxstore, store/mysqlstore or store/sqlitestore)", everonce.ErrInvalidArgument)
	}
	m, err := session.New(config) // for its checks and defaults
	if err != nil {
		return nil, fmt.Errorf("sqlsession: %w", err)
	}
	if config.Lease < time.Microsecond {
		return nil, fmt.Errorf("sqlsession: %w: Lease is below a microsecond", session.ErrConfig)
	}
	var o Options
	if opts != nil {
		o = *opts
	}
	if o.Batch < 0 || o.Batch > maxBatch || o.Batches < 0 {
		return nil, fmt.Errorf("sqlsession: %w: Batch is not from 0 to %d, or Batches is negative", everonce.ErrInvalidArgument, maxBatch)
	}
	d := db.Dialect()
	s := &Store[Tx]{
		receiver: receiver, db: db, dialect: d, config: m.Config(), lease: config.Lease.Microseconds(), wait: cmp.Or(o.Wait, defaultWait), st: newStatements(d),
		schema: sqldb.Schema{
			Name: "session", Meta: sqldb.NewMeta(d), Migrations: [][]string{definitions(d)},
			Hint: "call Store.Migrate once, or run the text of Store.Schema with your own migration tool",
		},
	}
	s.queue.busy = make(map[session.ID]bool)
	s.queue.most, s.queue.free = o.batches(d)
	return s, nil
}

// Config returns the Config of the sessions, with its defaults.
func (s *Store[Tx]) Config() session.Config { return s.config }

// Migrate creates or upgrades the tables. It does nothing if they are up to date. Several processes may call it at
// once. If the tables have a newer version, the error is [everonce.ErrSchema].
func (s *Store[Tx]) Migrate(ctx context.Context) error {
	return s.wrapError("migrate", s.schema.Migrate(ctx, s.db))
}

// Schema returns the statements that Migrate runs on an empty database, for another migration tool. They change only
// with a new version of the schema, which the changelog names.
func (s *Store[Tx]) Schema() string { return s.schema.Text() }

// Apply applies a command in a transaction that everonce begins and commits; see [everonce.TxReceiver.InTx]. work is
// needed for a [session.Request]. Numbers, marks, epochs and IDs above 2⁶³-1, and a principal that is not UTF-8 without
// NUL, are [session.ErrInvalid].
//
// It does not verify c.Principal: set it to the authenticated sender of a client's command.
//
// A refusal is in the reply, and nothing was written then. The error is the work's, or the store's, and the reply is
// then empty: [everonce.ErrStore], or [everonce.ErrOutcomeUnknown] if the commit's answer was lost. Send the same
// command again to find out.
func (s *Store[Tx]) Apply(ctx context.Context, c *session.Command, work Work[Tx]) (session.Reply, error) {
	switch {
	case s == nil || c == nil || c.Op == session.Request && work == nil:
		return session.Reply{}, fmt.Errorf("sqlsession: %w: the store, the command, or the work of a request is nil", everonce.ErrInvalidArgument)
	case !valid(c):
		return session.Reply{Err: session.ErrInvalid}, nil
	case c.Op == session.Tick: // the database has a clock
		return session.Reply{}, nil
	}
	until := time.Now().Add(s.wait)
	for try := 1; ; try++ {
		if err := s.loadOwners(ctx, c); err != nil {
			return session.Reply{}, err
		}
		apply := s.once
		switch {
		case c.Op == session.Request && s.owners.has(beatOf(c)):
			apply = s.batched
		case (c.Op == session.Request || c.Op == session.End) && !s.owners.has(beatOf(c)):
			apply = s.unlocked
		}
		answer, err := apply(ctx, c, work)
		switch {
		case err == nil, errors.Is(err, errRefused):
			return answer, nil
		case !errors.Is(err, errBusy):
			return session.Reply{}, err
		case time.Now().After(until):
			return session.Reply{Err: session.ErrInProgress}, nil
		case retry.Pause(ctx, retry.Within(time.Millisecond, 50*time.Millisecond, try)) != nil:
			return session.Reply{}, context.Cause(ctx)
		}
	}
}

// Errors that roll a transaction back, and are not returned.
var (
	errRefused = errors.New("sqlsession: the command is refused")
	errBusy    = errors.New("sqlsession: another transaction has the session")
	// errUnlocked: the session has ended, never existed, or is another client's, or another transaction has locked it.
	errUnlocked = errors.New("sqlsession: the session could not be locked")
)

func refuse(r session.Refusal) (session.Reply, error) { return session.Reply{Err: r}, errRefused }

func (s *Store[Tx]) once(ctx context.Context, c *session.Command, work Work[Tx]) (answer session.Reply, err error) {
	if c.Op == session.Request {
		err = s.inTx(ctx, "apply", func(ctx context.Context, conn sqldb.Conn, tx Tx) (err error) {
			answer, err = s.request(ctx, conn, c, func() ([]byte, error) { return work(ctx, tx, c.Payload) })
			return err
		})
	} else {
		err = s.withoutWork(ctx, "apply", func(ctx context.Context, conn sqldb.Conn) (err error) {
			switch c.Op {
			case session.Register:
				answer, err = s.register(ctx, conn, c)
			case session.KeepAlive:
				answer, err = s.keepAlive(ctx, conn, c)
			default:
				answer, err = s.end(ctx, conn, c)
			}
			return err
		})
	}
	switch {
	case errors.Is(err, errUnlocked):
		return s.unlocked(ctx, c, nil)
	case err == nil && c.Op == session.Register:
		s.owners.add(&session.Beat{Session: answer.Session, Nonce: c.Nonce})
	case err == nil && c.Op == session.KeepAlive:
		err = s.unlockedAll(ctx, c.Beats, answer.Beats)
	}
	return answer, err
}

// inTx runs fn in a transaction, and wraps failures of this package's statements.
func (s *Store[Tx]) inTx(ctx context.Context, what string, fn func(ctx context.Context, conn sqldb.Conn, tx Tx) error) error {
	err := s.receiver.InTx(ctx, func(ctx context.Context, tx Tx) error {
		conn, err := s.db.Join(ctx, tx)
		if err != nil {
			return err
		}
		return fn(ctx, ownErrors{conn}, tx)
	})
	if own := (*failure)(nil); errors.As(err, &own) {
		return s.wrapError(what, err)
	}
	return err
}

// withoutWorkTimeout bounds a transaction without work, and a read.
const withoutWorkTimeout = 30 * time.Second

// withoutWork runs fn in a transaction without a work. On MariaDB and MySQL it uses read committed, whatever the works'
// isolation is: at serializable each read would lock, and wait for works.
func (s *Store[Tx]) withoutWork(ctx context.Context, what string, fn func(ctx context.Context, conn sqldb.Conn) error) error {
	if !s.dialect.MySQL || placed.In(ctx) {
		return s.inTx(ctx, what, func(ctx context.Context, conn sqldb.Conn, _ Tx) error { return fn(ctx, conn) })
	}
	bounded, cancel := context.WithTimeout(ctx, withoutWorkTimeout)
	defer cancel()
	done := false
	err := s.db.Write(bounded, func(ctx context.Context, conn sqldb.Conn) error {
		err := fn(ctx, conn)
		done = err == nil
		return err
	})
	switch {
	case err == nil, errors.Is(err, errRefused), errors.Is(err, errBusy), errors.Is(err, errUnlocked):
		return err
	case done && !s.retryable(err): // the commit failed
		return fmt.Errorf("%w: %w", everonce.ErrOutcomeUnknown, s.wrapError(what, err))
	case ctx.Err() != nil:
		return context.Cause(ctx)
	}
	return s.wrapError(what, err)
}

// ownErrors distinguishes failures of this package's statements from failures of the work.
type ownErrors struct{ sqldb.Conn }

func (t ownErrors) Send(ctx context.Context, calls ...*sqldb.Call) error {
	if err := t.Conn.Send(ctx, calls...); err != nil {
		return &failure{err}
	}
	return nil
}

type failure struct{ error }

func (f *failure) Unwrap() error { return f.error }

func (s *Store[Tx]) wrapError(what string, err error) error {
	if err == nil || errors.Is(err, everonce.ErrSchema) {
		return err
	}
	return sqldb.Failed(s.db, "sqlsession: "+what, s.schema.Hint, err)
}

// valid reports whether a command is valid and fits the columns.
func valid(c *session.Command) bool {
	fits := func(numbers ...uint64) bool {
		highest := uint64(0)
		for _, n := range numbers {
			highest = max(highest, n)
		}
		return highest <= math.MaxInt64
	}
	if c.Op < session.Register || c.Op > session.Tick || len(c.Beats) > session.MaxBeats || len(c.Principal) > session.MaxPrincipal ||
		!utf8.ValidString(c.Principal) || strings.ContainsRune(c.Principal, 0) || !fits(uint64(c.Session), c.Epoch, c.Number, c.Mark) {
		return false
	}
	for i := range c.Beats {
		b := &c.Beats[i]
		if !fits(uint64(b.Session), b.Epoch, b.Mark) {
			return false
		}
	}
	return true
}
