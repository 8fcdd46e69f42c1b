package main

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	mathrand "math/rand/v2"
	"net"
	"os"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/go-sql-driver/mysql"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/store/mysqlstore"
)

const mariadbConns = 16

// mariadbBench is a separate database on the server that the tests use.
type mariadbBench struct {
	db    *sql.DB
	name  string
	trips atomic.Int64
	tx    *everonce.TxReceiver[*sql.Tx]
}

func mariadb(ctx context.Context) ([]*contest, func() error, error) {
	b, err := openMariaDB(ctx)
	if err == nil {
		err = b.fill(ctx)
	}
	if err != nil {
		return nil, nil, errors.Join(err, b.close())
	}
	return []*contest{b.transactional(), b.replays()}, b.close, nil
}

// openMariaDB makes a database; close it even after an error.
func openMariaDB(ctx context.Context) (*mariadbBench, error) {
	b := &mariadbBench{}
	url := os.Getenv("EVERONCE_TEST_MARIADB_URL")
	if url == "" {
		return b, errors.New(`no MariaDB: run it by make bench, or set EVERONCE_TEST_MARIADB_URL, or choose others with -only`)
	}
	return b, b.open(ctx, url)
}

func (b *mariadbBench) open(ctx context.Context, url string) error {
	config, err := mysqlstore.ParseURL(url)
	if err != nil {
		return err
	}
	config.InterpolateParams = true // what is written by hand would else be prepared each time
	config.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		var d net.Dialer
		conn, err := d.DialContext(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return &countingConn{Conn: conn, trips: &b.trips}, nil
	}
	connector, err := mysql.NewConnector(config)
	if err != nil {
		return err
	}
	b.db = sql.OpenDB(connector)
	b.db.SetMaxOpenConns(mariadbConns)
	b.db.SetMaxIdleConns(mariadbConns)
	name := "bench_" + strings.ToLower(rand.Text())
	if _, err := b.db.ExecContext(ctx, "CREATE DATABASE "+name); err != nil {
		return err
	}
	b.name = name
	store, err := mysqlstore.New(b.db, &mysqlstore.Options{Database: name})
	if err != nil {
		return err
	}
	if err := store.Migrate(ctx); err != nil {
		return err
	}
	if b.tx, err = everonce.NewTxReceiver(store, &everonce.Options{Codec: everonce.Raw()}); err != nil {
		return err
	}
	for _, text := range []string{
		"CREATE TABLE {n}.account (id int PRIMARY KEY, balance bigint NOT NULL) ENGINE = InnoDB",
		"INSERT INTO {n}.account SELECT seq, 0 FROM seq_1_to_" + strconv.Itoa(accounts),
		"CREATE TABLE {n}.naive (scope varbinary(255), id varbinary(255), result blob, created_at timestamp(6) NOT NULL DEFAULT now(6), " +
			"expires_at timestamp(6) NOT NULL DEFAULT (now(6) + interval 1 day), PRIMARY KEY (scope, id), KEY (expires_at)) ENGINE = InnoDB",
	} {
		if _, err := b.db.ExecContext(ctx, b.text(text)); err != nil {
			return err
		}
	}
	return nil
}

// text puts the database's name into a statement.
func (b *mariadbBench) text(statement string) string {
	return strings.ReplaceAll(statement, "{n}", b.name)
}

// fill does the operations that are replayed later.
func (b *mariadbBench) fill(ctx context.Context) error {
	return b.inTx(ctx, func(tx *sql.Tx) error {
		for n := range int64(knownKeys) {
			if _, err := everonce.DoTx(ctx, tx, b.tx, knownKey(n), func(context.Context) ([]byte, error) { return sampleBytes, nil }); err != nil {
				return err
			}
			if err := b.insert(ctx, tx, knownKey(n), sampleBytes); err != nil {
				return err
			}
		}
		return nil
	})
}

func (b *mariadbBench) close() error {
	if b.db == nil {
		return nil
	}
	var err error
	if b.name != "" {
		_, err = b.db.ExecContext(context.Background(), "DROP DATABASE "+b.name)
	}
	return errors.Join(err, b.db.Close())
}

func (b *mariadbBench) inTx(ctx context.Context, fn func(tx *sql.Tx) error) error {
	tx, err := b.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback() //nolint:errcheck // after the commit it does nothing
	if err := fn(tx); err != nil {
		return err
	}
	return tx.Commit()
}

// work is the effect: one account of many is charged.
func (b *mariadbBench) work(ctx context.Context, tx *sql.Tx) ([]byte, error) {
	_, err := tx.ExecContext(ctx, b.text("UPDATE {n}.account SET balance = balance - 1 WHERE id = ?"), mathrand.IntN(accounts)+1)
	return sampleBytes, err
}

func (b *mariadbBench) insert(ctx context.Context, tx *sql.Tx, key everonce.Key, result []byte) error {
	_, err := tx.ExecContext(ctx, b.text("INSERT INTO {n}.naive (scope, id, result) VALUES (?, ?, ?)"), string(key.Scope), key.ID, result)
	return err
}

// seen is the naive check: an error where the key is not as it should be.
func (b *mariadbBench) seen(ctx context.Context, q interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}, key everonce.Key, want bool,
) error {
	var result []byte
	err := q.QueryRowContext(ctx, b.text("SELECT result FROM {n}.naive WHERE scope = ? AND id = ?"), string(key.Scope), key.ID).Scan(&result)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return err
	}
	if found := err == nil; found != want {
		return errors.New("found is " + strconv.FormatBool(found))
	}
	return nil
}

func (b *mariadbBench) transact(ctx context.Context, key everonce.Key, want everonce.Outcome, opts ...everonce.CallOption) error {
	res, err := everonce.Transact(ctx, b.tx, key, b.work, opts...)
	return expect(res.Outcome, want, err)
}

// transactional: new keys, and an effect in the same database.
func (b *mariadbBench) transactional() *contest {
	bare := &way{name: "bare: BEGIN, UPDATE, COMMIT", do: func(ctx context.Context, _ int64) error {
		return b.inTx(ctx, func(tx *sql.Tx) error { _, err := b.work(ctx, tx); return err })
	}}
	naiveFirst := &way{name: "naive: insert, work, update", do: func(ctx context.Context, n int64) error {
		key := orderKey(n)
		return b.inTx(ctx, func(tx *sql.Tx) error {
			if err := b.insert(ctx, tx, key, nil); err != nil {
				return err
			}
			result, err := b.work(ctx, tx)
			if err != nil {
				return err
			}
			_, err = tx.ExecContext(ctx, b.text("UPDATE {n}.naive SET result = ? WHERE scope = ? AND id = ?"), result, string(key.Scope), key.ID)
			return err
		})
	}}
	naive := &way{name: "naive: check, work, insert", do: func(ctx context.Context, n int64) error {
		return b.inTx(ctx, func(tx *sql.Tx) error {
			if err := b.seen(ctx, tx, orderKey(n), false); err != nil {
				return err
			}
			if _, err := b.work(ctx, tx); err != nil {
				return err
			}
			return b.insert(ctx, tx, orderKey(n), sampleBytes)
		})
	}}
	claimFirst := &way{name: "ours, claim first", do: func(ctx context.Context, n int64) error {
		return b.transact(ctx, orderKey(n), everonce.Executed)
	}}
	optimistic := &way{name: "ours, optimistic", do: func(ctx context.Context, n int64) error {
		return b.transact(ctx, orderKey(n), everonce.Executed, everonce.Optimistic())
	}}
	return &contest{
		store: "MariaDB", mode: "transactional, new keys", callers: mariadbConns, trips: &b.trips,
		ways: []*way{bare, naiveFirst, claimFirst, naive, optimistic},
		targets: []target{
			claimFirst.atLeast(0.9, naive, "MariaDB, claim first: of the naive way that checks"),
			claimFirst.atLeast(0.9, naiveFirst, "MariaDB, claim first: of its naive twin"),
			optimistic.atLeast(0.9, naive, "MariaDB, optimistic, new keys: of its naive twin"),
		},
	}
}

// replays: known keys.
func (b *mariadbBench) replays() *contest {
	naive := &way{name: "naive: check", do: func(ctx context.Context, n int64) error { return b.seen(ctx, b.db, knownKey(n), true) }}
	optimistic := &way{name: "ours, optimistic", do: func(ctx context.Context, n int64) error {
		return b.transact(ctx, knownKey(n), everonce.Replayed, everonce.Optimistic())
	}}
	claimFirst := &way{name: "ours, claim first", do: func(ctx context.Context, n int64) error {
		return b.transact(ctx, knownKey(n), everonce.Replayed)
	}}
	return &contest{
		store: "MariaDB", mode: "transactional, replay", callers: mariadbConns, trips: &b.trips,
		ways: []*way{naive, optimistic, claimFirst},
	}
}
