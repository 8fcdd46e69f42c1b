package sqlproducer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/internal/sqldb"
	"github.com/everonce/everonce/session/producer"
)

// Options are the options of a [Store]. The zero value of each field is its default.
type Options struct {
	// Window is how many batches of a producer are remembered in each stream: at least as many as it sends without waiting
	// for an acknowledgement. At most [producer.MaxWindow]. Default 5.
	Window int
	// MaxRecords bounds the records of a batch; a larger one is [producer.ErrTooLarge]. At most [producer.MaxCount].
	// Default 10 000.
	MaxRecords int
	// MaxBytes bounds the bytes of a batch's records in the same way. Default 1 MiB.
	MaxBytes int
	// GrantedEpochs refuses an epoch that was not granted as [producer.ErrUnknown], also of a producer without a name,
	// which otherwise may raise its epoch without a grant, as clients of Kafka do.
	GrantedEpochs bool
}

const (
	defaultMaxRecords = 10_000
	defaultMaxBytes   = 1 << 20
	// MaxName bounds the names of streams and producers, in bytes. They are UTF-8 without NUL.
	MaxName = 255
)

// Store is a log of streams in tables beside the store of a receiver. Tx is the handle of the application's
// transactions. It is safe for concurrent use.
type Store[Tx any] struct {
	receiver *everonce.TxReceiver[Tx]
	db       sqldb.DB[Tx]
	dialect  *sqldb.Dialect
	opts     Options
	schema   sqldb.Schema
	st       *statements
}

// New returns the log beside the receiver's store, which must be in a SQL database: store/pgxstore, store/mysqlstore or
// store/sqlitestore. All processes should have the same options. It does no I/O. The error wraps
// [everonce.ErrInvalidArgument].
func New[Tx any](receiver *everonce.TxReceiver[Tx], opts *Options) (*Store[Tx], error) {
	if receiver == nil {
		return nil, fmt.Errorf("sqlproducer: %w: the receiver is nil", everonce.ErrInvalidArgument)
	}
	db, ok := sqldb.Of(receiver.Store())
	if !ok {
		return nil, fmt.Errorf("sqlproducer: %w: the receiver's store is not in a SQL database (use store/pgxstore, store/mysqlstore or store/sqlitestore)", everonce.ErrInvalidArgument)
	}
	var o Options
	if opts != nil {
		o = *opts
	}
	if o.Window < 0 || o.Window > producer.MaxWindow || o.MaxRecords < 0 || o.MaxRecords > producer.MaxCount || o.MaxBytes < 0 {
		return nil, fmt.Errorf("sqlproducer: %w: Window, MaxRecords or MaxBytes is negative or too large", everonce.ErrInvalidArgument)
	}
	o.Window = cmp.Or(o.Window, producer.DefaultWindow)
	o.MaxRecords, o.MaxBytes = cmp.Or(o.MaxRecords, defaultMaxRecords), cmp.Or(o.MaxBytes, defaultMaxBytes)
	d := db.Dialect()
	return &Store[Tx]{
		receiver: receiver, db: db, dialect: d, opts: o, st: newStatements(d),
		schema: sqldb.Schema{
			Name: "producer", Meta: sqldb.NewMeta(d), Migrations: [][]string{definitions(d)},
			Hint: "call Store.Migrate once, or run the text of Store.Schema with your own migration tool",
		},
	}, nil
}

// Migrate creates or upgrades the tables. It does nothing if they are up to date. Several processes may call it at
// once. If the tables have a newer version, the error is [everonce.ErrSchema].
func (s *Store[Tx]) Migrate(ctx context.Context) error {
	return s.wrapError("migrate", s.schema.Migrate(ctx, s.db))
}

// Schema returns the statements that Migrate runs on an empty database, for another migration tool. They change only
// with a new version of the schema, which the changelog names.
func (s *Store[Tx]) Schema() string { return s.schema.Text() }

// CreateStream creates a stream, or does nothing if it exists. The error wraps [everonce.ErrInvalidArgument] for a name
// that is empty, too long or not UTF-8, or [everonce.ErrStore].
func (s *Store[Tx]) CreateStream(ctx context.Context, name string) error {
	if err := checkName("the stream's name", name); err != nil {
		return err
	}
	return s.inTx(ctx, "create a stream", func(ctx context.Context, conn sqldb.Conn) error {
		return conn.Send(ctx, s.dialect.Call(s.st.create, name))
	})
}

func checkName(what, name string) error {
	if name == "" || !fits(name) {
		return fmt.Errorf("sqlproducer: %w: %s is empty, longer than %d bytes, or not UTF-8 without NUL", everonce.ErrInvalidArgument, what, MaxName)
	}
	return nil
}

func fits(name string) bool {
	return len(name) <= MaxName && utf8.ValidString(name) && !strings.ContainsRune(name, 0)
}

// errRefused rolls a transaction back after a refusal; it is not returned.
var errRefused = errors.New("sqlproducer: the batch is refused")

// inTx runs fn in a transaction that everonce begins and commits.
func (s *Store[Tx]) inTx(ctx context.Context, what string, fn func(ctx context.Context, conn sqldb.Conn) error) error {
	return s.receiver.InTx(ctx, func(ctx context.Context, tx Tx) error { return s.inCallerTx(ctx, tx, what, fn) })
}

// inCallerTx runs fn in a transaction of the caller, and wraps its errors.
func (s *Store[Tx]) inCallerTx(ctx context.Context, tx Tx, what string, fn func(ctx context.Context, conn sqldb.Conn) error) error {
	conn, err := s.db.Join(ctx, tx)
	if err != nil {
		return fmt.Errorf("sqlproducer: %s: %w", what, err)
	}
	return s.wrapError(what, fn(ctx, conn))
}

func (s *Store[Tx]) wrapError(what string, err error) error {
	if err == nil || errors.Is(err, everonce.ErrSchema) || errors.Is(err, errRefused) {
		return err
	}
	return sqldb.Failed(s.db, "sqlproducer: "+what, s.schema.Hint, err)
}

// into scans a call's rows into numbers; the last row remains.
func into(call *sqldb.Call, dest ...any) *sqldb.Call {
	return call.ForEach(func(r sqldb.Row) error { return r.Scan(dest...) })
}
