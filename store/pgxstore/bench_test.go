package pgxstore_test

import (
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/store/pgxstore"
)

// The benchmarks compare ways of doing the same work, an UPDATE of one account, at 16 connections. The ways take turns
// in short rounds, so that other load on the machine affects all of them, and what is
// reported are ratios. Run them by
//
//	go test -run '^$' -bench Transact -benchtime 1x ./store/pgxstore
const (
	benchConns    = 16
	benchAccounts = 10_000
	benchRounds   = 30
	benchRound    = 150 * time.Millisecond
)

// way is one way of doing the work for the n-th key.
type way struct {
	name string
	do   func(ctx context.Context, n int64) error
	runs int64
	time time.Duration
}

func (w *way) rate() float64 { return float64(w.runs) / w.time.Seconds() }

// race lets the ways take turns.
func race(b *testing.B, keys *atomic.Int64, ways ...*way) {
	b.Helper()
	ctx := context.Background()
	var broken atomic.Bool
	turn := func(w *way, d time.Duration) {
		if broken.Load() {
			b.FailNow()
		}
		var group sync.WaitGroup
		var runs atomic.Int64
		start := time.Now()
		for range benchConns {
			group.Go(func() {
				for time.Since(start) < d {
					if err := w.do(ctx, keys.Add(1)); err != nil {
						b.Error(w.name, err)
						broken.Store(true)
						return
					}
					runs.Add(1)
				}
			})
		}
		group.Wait()
		w.runs += runs.Load()
		w.time += time.Since(start)
	}
	for b.Loop() {
		for _, w := range ways {
			turn(w, benchRound/2) // connections and statements are made
			w.runs, w.time = 0, 0
		}
		for range benchRounds {
			for _, w := range ways {
				turn(w, benchRound)
			}
		}
	}
	b.ReportMetric(0, "ns/op")
	for _, w := range ways {
		b.ReportMetric(w.rate(), w.name+"/s")
	}
}

func ratio(b *testing.B, w, of *way, name string, want float64) {
	b.Helper()
	got := w.rate() / of.rate()
	b.ReportMetric(got, name)
	b.Logf("%-28s %.2f, to be at least %.2f", name, got, want)
}

func benchSchema(b *testing.B) string {
	schema := newSchema(b)
	mustExec(b, "CREATE TABLE "+schema+".account (id int PRIMARY KEY, balance bigint NOT NULL) WITH (fillfactor = 50)")
	mustExec(b, "INSERT INTO "+schema+".account SELECT g, 0 FROM generate_series(1, "+strconv.Itoa(benchAccounts)+") AS g")
	mustExec(b, "CREATE TABLE "+schema+".naive (scope text, id text, status text NOT NULL, result bytea, "+
		"created_at timestamptz NOT NULL DEFAULT now(), expires_at timestamptz NOT NULL DEFAULT now() + interval '1 day', PRIMARY KEY (scope, id))")
	mustExec(b, "CREATE INDEX ON "+schema+".naive (expires_at)")
	return schema
}

func benchKey(n int64) everonce.Key {
	return everonce.Key{Scope: "tenant/charge", ID: "order-" + strconv.FormatInt(n*7919%1_000_003, 36) + "-" + strconv.FormatInt(n, 10)}
}

var benchResult = []byte(`{"receipt":"r-0123456789","amount":4200,"currency":"EUR"}`)

func BenchmarkTransactPgx(b *testing.B) {
	schema := benchSchema(b)
	h := newPgx(b, setup{opts: pgxstore.Options{Schema: schema}, conns: benchConns})
	receiver, err := everonce.NewTxReceiver(h.store, &everonce.Options{Codec: everonce.Raw()})
	noErr(b, err)
	account := "UPDATE " + schema + ".account SET balance = balance + 1 WHERE id = $1"
	work := func(ctx context.Context, tx pgx.Tx) ([]byte, error) {
		_, err := tx.Exec(ctx, account, rand.IntN(benchAccounts)+1)
		return benchResult, err
	}
	transact := func(opts ...everonce.CallOption) func(context.Context, int64) error {
		return func(ctx context.Context, n int64) error {
			_, err := everonce.Transact(ctx, receiver, benchKey(n), work, opts...)
			return err
		}
	}
	inTx := func(ctx context.Context, fn func(tx pgx.Tx) error) error {
		tx, err := h.begin(ctx, sql.LevelDefault)
		if err != nil {
			return err
		}
		defer tx.Rollback(ctx) //nolint:errcheck // after the commit it does nothing
		if err := fn(tx); err != nil {
			return err
		}
		return tx.Commit(ctx)
	}
	naive := schema + ".naive"
	bare := &way{name: "bare", do: func(ctx context.Context, _ int64) error {
		return inTx(ctx, func(tx pgx.Tx) error { _, err := work(ctx, tx); return err })
	}}
	naiveFirst := &way{name: "naive", do: func(ctx context.Context, n int64) error {
		key := benchKey(n)
		return inTx(ctx, func(tx pgx.Tx) error {
			tag, err := tx.Exec(ctx, "INSERT INTO "+naive+" (scope, id, status) VALUES ($1, $2, 'claimed') ON CONFLICT DO NOTHING", string(key.Scope), key.ID)
			if err != nil || tag.RowsAffected() == 0 {
				return fmt.Errorf("not new: %w", err)
			}
			result, err := work(ctx, tx)
			if err != nil {
				return err
			}
			_, err = tx.Exec(ctx, "UPDATE "+naive+" SET status = 'done', result = $3 WHERE scope = $1 AND id = $2", string(key.Scope), key.ID, result)
			return err
		})
	}}
	naiveLate := &way{name: "naive-late", do: func(ctx context.Context, n int64) error {
		key := benchKey(n)
		var found bool
		if err := h.query(ctx, "SELECT EXISTS (SELECT FROM "+naive+" WHERE scope = $1 AND id = $2)", string(key.Scope), key.ID).Scan(&found); err != nil || found {
			return fmt.Errorf("not new: %w", err)
		}
		return inTx(ctx, func(tx pgx.Tx) error {
			result, err := work(ctx, tx)
			if err != nil {
				return err
			}
			_, err = tx.Exec(ctx, "INSERT INTO "+naive+" (scope, id, status, result) VALUES ($1, $2, 'done', $3)", string(key.Scope), key.ID, result)
			return err
		})
	}}
	claimFirst := &way{name: "claim-first", do: transact()}
	optimistic := &way{name: "optimistic", do: transact(everonce.Optimistic())}
	var keys atomic.Int64
	race(b, &keys, bare, naiveFirst, claimFirst, naiveLate, optimistic)
	ratio(b, claimFirst, naiveFirst, "claim-first/naive", 0.95)
	ratio(b, claimFirst, bare, "claim-first/bare", 0.58)
	ratio(b, optimistic, naiveLate, "optimistic/naive-late", 1)
}

// BenchmarkTransactReplay compares a replay with the same SELECT, its columns read and nothing done with
// them.
func BenchmarkTransactReplay(b *testing.B) {
	schema := benchSchema(b)
	h := newPgx(b, setup{opts: pgxstore.Options{Schema: schema}, conns: benchConns})
	receiver, err := everonce.NewTxReceiver(h.store, &everonce.Options{Codec: everonce.Raw()})
	noErr(b, err)
	texts, err := pgxstore.Texts(&pgxstore.Options{Schema: schema})
	noErr(b, err)
	const known = 10_000
	ctx := context.Background()
	work := func(context.Context, pgx.Tx) ([]byte, error) { return benchResult, nil }
	for n := range int64(known) {
		_, err := everonce.Transact(ctx, receiver, benchKey(n), work, everonce.Optimistic())
		noErr(b, err)
	}
	mustExec(b, "VACUUM ANALYZE "+h.record())
	replay := func(opts ...everonce.CallOption) func(context.Context, int64) error {
		return func(ctx context.Context, n int64) error {
			res, err := everonce.Transact(ctx, receiver, benchKey(n%known), work, opts...)
			if err == nil && res.Outcome != everonce.Replayed {
				return fmt.Errorf("the outcome is %v", res.Outcome)
			}
			return err
		}
	}
	selected := &way{name: "select", do: func(ctx context.Context, n int64) error {
		id := benchKey(n % known).RecordID()
		values := make([]any, 33)
		for i := range values {
			values[i] = new([]byte)
		}
		return h.query(ctx, texts.Read.Text, pgx.QueryResultFormats{pgx.BinaryFormatCode}, id[:]).Scan(values...)
	}}
	optimistic := &way{name: "replay-optimistic", do: replay(everonce.Optimistic())}
	claimFirst := &way{name: "replay-claim-first", do: replay()}
	var keys atomic.Int64
	race(b, &keys, selected, optimistic, claimFirst)
	ratio(b, optimistic, selected, "replay/select", 0.9)
	ratio(b, claimFirst, selected, "replay-claim-first/select", 0)
}
