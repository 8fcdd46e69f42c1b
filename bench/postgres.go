package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"net"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/internal/sqlstore"
	"github.com/everonce/everonce/store/pgxstore"
)

const (
	postgresConns = 16
	accounts      = 10_000
	knownKeys     = 10_000
)

// orderKey is the key of operation n: neighbours in time are not neighbours in the index.
func orderKey(n int64) everonce.Key {
	return everonce.Key{Scope: "tenant/charge", ID: "order-" + strconv.FormatInt(n*7919%1_000_003, 36) + "-" + strconv.FormatInt(n, 10)}
}

// mailKey is orderKey in another scope: each contest counts its operations from the start.
func mailKey(n int64) everonce.Key { return everonce.Key{Scope: "tenant/mail", ID: orderKey(n).ID} }

// knownKey is one of the keys that were done before the replays.
func knownKey(n int64) everonce.Key {
	return everonce.Key{Scope: "tenant/known", ID: "order-" + strconv.FormatInt(n%knownKeys, 10)}
}

// pgBench is a separate schema on the server that the tests use.
type pgBench struct {
	database string // empty is the URL's
	pool     *pgxpool.Pool
	schema   string
	trips    atomic.Int64
	tx       *everonce.TxReceiver[pgx.Tx]
	do       *everonce.Receiver
	charge   string
}

func postgres(ctx context.Context) ([]*contest, func() error, error) {
	b, err := openPostgres(ctx, "")
	if err == nil {
		err = b.fill(ctx)
	}
	if err != nil {
		return nil, nil, errors.Join(err, b.close())
	}
	return b.contests(), b.close, nil
}

// openPostgres opens a schema in a database, or in the one that the tests use; close it even after an error.
func openPostgres(ctx context.Context, database string) (*pgBench, error) {
	b := &pgBench{database: database}
	url := os.Getenv("EVERONCE_TEST_POSTGRES_URL")
	if url == "" {
		return b, errors.New(`no PostgreSQL: run it by make bench, or set EVERONCE_TEST_POSTGRES_URL, or choose others with -only`)
	}
	return b, b.open(ctx, url)
}

func (b *pgBench) open(ctx context.Context, url string) error {
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		return err
	}
	config.MaxConns = postgresConns
	config.ConnConfig.DialFunc = b.dial
	config.ConnConfig.Database = cmp.Or(b.database, config.ConnConfig.Database)
	if b.pool, err = pgxpool.NewWithConfig(ctx, config); err != nil {
		return err
	}
	random := make([]byte, 6)
	if _, err := rand.Read(random); err != nil {
		return err
	}
	b.schema = "bench_" + hex.EncodeToString(random)
	setup := strings.ReplaceAll(`CREATE SCHEMA {s};
		CREATE TABLE {s}.account (id int PRIMARY KEY, balance bigint NOT NULL) WITH (fillfactor = 50);
		INSERT INTO {s}.account SELECT g, 0 FROM generate_series(1, `+strconv.Itoa(accounts)+`) AS g;
		CREATE TABLE {s}.bill (order_id text PRIMARY KEY, cents bigint NOT NULL);
		CREATE TABLE {s}.naive (scope text, id text, status text NOT NULL, result bytea, created_at timestamptz NOT NULL DEFAULT now(),
			expires_at timestamptz NOT NULL DEFAULT now() + interval '1 day', PRIMARY KEY (scope, id));
		CREATE INDEX ON {s}.naive (expires_at)`, "{s}", b.schema)
	if _, err := b.pool.Exec(ctx, setup); err != nil {
		return err
	}
	store, err := pgxstore.New(b.pool, &pgxstore.Options{Schema: b.schema})
	if err != nil {
		return err
	}
	if err := store.Migrate(ctx); err != nil {
		return err
	}
	if b.tx, err = everonce.NewTxReceiver(store, &everonce.Options{Codec: everonce.Raw()}); err != nil {
		return err
	}
	if b.do, err = everonce.NewReceiver(store, everonce.Refuse, &everonce.Options{Codec: everonce.Raw()}); err != nil {
		return err
	}
	b.charge = "UPDATE " + b.schema + ".account SET balance = balance - 1 WHERE id = $1"
	return nil
}

// fill does the operations that are replayed later, ours and the naive ones.
func (b *pgBench) fill(ctx context.Context) error {
	for n := range int64(knownKeys) {
		if _, err := everonce.Transact(ctx, b.tx, knownKey(n), func(context.Context, pgx.Tx) ([]byte, error) { return sampleBytes, nil }, everonce.Optimistic()); err != nil {
			return err
		}
	}
	_, err := b.pool.Exec(ctx, "INSERT INTO "+b.schema+".naive (scope, id, status, result) SELECT 'tenant/known', 'order-' || g, 'done', $1 FROM generate_series(0, $2) AS g", sampleBytes, knownKeys-1)
	if err != nil {
		return err
	}
	_, err = b.pool.Exec(ctx, "VACUUM ANALYZE")
	return err
}

func (b *pgBench) close() error {
	if b.pool == nil {
		return nil
	}
	defer b.pool.Close()
	if b.schema == "" {
		return nil
	}
	_, err := b.pool.Exec(context.Background(), "DROP SCHEMA IF EXISTS "+b.schema+" CASCADE")
	return err
}

// dial counts round trips: what is written after something was read is a new one.
func (b *pgBench) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	return &countingConn{Conn: conn, trips: &b.trips}, nil
}

type countingConn struct {
	net.Conn
	trips *atomic.Int64
	asked atomic.Bool
}

func (c *countingConn) Write(p []byte) (int, error) {
	if !c.asked.Swap(true) {
		c.trips.Add(1)
	}
	return c.Conn.Write(p)
}

func (c *countingConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n > 0 {
		c.asked.Store(false)
	}
	return n, err
}

// work is the effect: one account of many is charged.
func (b *pgBench) work(ctx context.Context, tx pgx.Tx) ([]byte, error) {
	_, err := tx.Exec(ctx, b.charge, mathrand.IntN(accounts)+1)
	return sampleBytes, err
}

func (b *pgBench) inTx(ctx context.Context, fn func(tx pgx.Tx) error) error {
	return pgx.BeginFunc(ctx, b.pool, fn)
}

// seen is the naive check.
func (b *pgBench) seen(ctx context.Context, key everonce.Key) (found bool, err error) {
	var result []byte
	err = b.pool.QueryRow(ctx, "SELECT result FROM "+b.schema+".naive WHERE scope = $1 AND id = $2", string(key.Scope), key.ID).Scan(&result)
	if errors.Is(err, pgx.ErrNoRows) {
		return false, nil
	}
	return err == nil, err
}

func (b *pgBench) contests() []*contest {
	return []*contest{b.transactional(), b.replays(), b.guarded(), b.batches()}
}

// transactional: new keys, and an effect in the same database.
func (b *pgBench) transactional() *contest {
	table := b.schema + ".naive"
	transact := func(opts ...everonce.CallOption) func(context.Context, int64) error {
		return func(ctx context.Context, n int64) error {
			res, err := everonce.Transact(ctx, b.tx, orderKey(n), b.work, opts...)
			return expect(res.Outcome, everonce.Executed, err)
		}
	}
	bare := &way{name: "bare: BEGIN, UPDATE, COMMIT", do: func(ctx context.Context, _ int64) error {
		return b.inTx(ctx, func(tx pgx.Tx) error { _, err := b.work(ctx, tx); return err })
	}}
	naiveFirst := &way{name: "naive: insert, work, update", do: func(ctx context.Context, n int64) error {
		key := orderKey(n)
		return b.inTx(ctx, func(tx pgx.Tx) error {
			tag, err := tx.Exec(ctx, "INSERT INTO "+table+" (scope, id, status) VALUES ($1, $2, 'claimed') ON CONFLICT DO NOTHING", string(key.Scope), key.ID)
			if err == nil && tag.RowsAffected() == 0 {
				err = errors.New("the key is not new")
			}
			if err != nil {
				return err
			}
			result, err := b.work(ctx, tx)
			if err != nil {
				return err
			}
			_, err = tx.Exec(ctx, "UPDATE "+table+" SET status = 'done', result = $3 WHERE scope = $1 AND id = $2", string(key.Scope), key.ID, result)
			return err
		})
	}}
	naiveLate := &way{name: "naive: check, work, then insert", do: func(ctx context.Context, n int64) error {
		key := orderKey(n)
		if found, err := b.seen(ctx, key); err != nil || found {
			return fmt.Errorf("found is %v: %w", found, err)
		}
		return b.inTx(ctx, func(tx pgx.Tx) error {
			result, err := b.work(ctx, tx)
			if err != nil {
				return err
			}
			_, err = tx.Exec(ctx, "INSERT INTO "+table+" (scope, id, status, result) VALUES ($1, $2, 'done', $3)", string(key.Scope), key.ID, result)
			return err
		})
	}}
	claimFirst := &way{name: "ours, claim first", do: transact()}
	optimistic := &way{name: "ours, optimistic", do: transact(everonce.Optimistic())}
	return &contest{
		store: "PostgreSQL", mode: "transactional, new keys", callers: postgresConns, trips: &b.trips,
		ways: []*way{bare, naiveFirst, claimFirst, naiveLate, optimistic},
		targets: []target{
			claimFirst.atLeast(0.95, naiveFirst, "PostgreSQL, claim first: of the naive way"),
			claimFirst.atLeast(0.58, bare, "PostgreSQL, claim first: of bare"),
			optimistic.atLeast(1, naiveLate, "PostgreSQL, optimistic, new keys: of its naive twin"),
		},
	}
}

// replays: known keys.
func (b *pgBench) replays() *contest {
	replay := func(opts ...everonce.CallOption) func(context.Context, int64) error {
		return func(ctx context.Context, n int64) error {
			res, err := everonce.Transact(ctx, b.tx, knownKey(n), b.work, opts...)
			return expect(res.Outcome, everonce.Replayed, err)
		}
	}
	// The same SELECT by hand: the columns that a replay reads, into variables of their types.
	text := "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint, " + sqlstore.BriefColumns + " FROM " + b.schema + ".everonce_record WHERE id = $1"
	columns := &way{name: "bare: the same SELECT", do: func(ctx context.Context, n int64) error {
		id := knownKey(n).RecordID()
		var now, state, token, attempt, kind, format int64
		var lease, until, purge, completed *int64
		var alg, codec, unknown, owner *string
		var nonce, sum, data, summary []byte
		return b.pool.QueryRow(ctx, text, id[:]).Scan(&now, &state, &token, &nonce, &attempt, &lease, &alg, &sum,
			&kind, &codec, &data, &summary, &unknown, &format, &until, &purge, &owner, &completed)
	}}
	// A handler whose requests have a deadline makes that context either way; without one we make our own, for
	// Options.StoreTimeout, and the SELECT by hand has no bound.
	within := func(w *way) *way {
		return &way{name: w.name + ", with a deadline", do: func(ctx context.Context, n int64) error {
			ctx, cancel := context.WithTimeout(ctx, time.Second)
			defer cancel()
			return w.do(ctx, n)
		}}
	}
	naive := &way{name: "naive: check", do: func(ctx context.Context, n int64) error {
		if found, err := b.seen(ctx, knownKey(n)); err != nil || !found {
			return fmt.Errorf("found is %v: %w", found, err)
		}
		return nil
	}}
	optimistic := &way{name: "ours, optimistic", do: replay(everonce.Optimistic())}
	claimFirst := &way{name: "ours, claim first", do: replay()}
	return &contest{
		store: "PostgreSQL", mode: "transactional, replay", callers: postgresConns, trips: &b.trips,
		ways:    []*way{columns, naive, optimistic, claimFirst, within(columns), within(optimistic)},
		targets: []target{optimistic.atLeast(0.9, columns, "PostgreSQL, optimistic, replay: of the same SELECT")},
	}
}

// guarded: new keys, and an effect elsewhere that costs nothing. Bare is what any record costs: one insert.
func (b *pgBench) guarded() *contest {
	table := b.schema + ".naive"
	insert := func(ctx context.Context, key everonce.Key) error {
		_, err := b.pool.Exec(ctx, "INSERT INTO "+table+" (scope, id, status, result) VALUES ($1, $2, 'done', $3)", string(key.Scope), key.ID, sampleBytes)
		return err
	}
	bare := &way{name: "bare: INSERT", do: func(ctx context.Context, n int64) error { return insert(ctx, mailKey(n)) }}
	naive := &way{name: "naive: check, work, then insert", do: func(ctx context.Context, n int64) error {
		key := mailKey(n)
		if found, err := b.seen(ctx, key); err != nil || found {
			return fmt.Errorf("found is %v: %w", found, err)
		}
		return insert(ctx, key)
	}}
	ours := &way{name: "ours", do: func(ctx context.Context, n int64) error {
		res, err := everonce.Do(ctx, b.do, mailKey(n), func(context.Context, *everonce.Attempt) ([]byte, error) { return sampleBytes, nil })
		return expect(res.Outcome, everonce.Executed, err)
	}}
	return &contest{
		store: "PostgreSQL", mode: "guarded, new keys", callers: postgresConns, trips: &b.trips,
		ways: []*way{bare, naive, ours},
	}
}
