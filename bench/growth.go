package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/session"
	"github.com/everonce/everonce/session/sqlsession"
	"github.com/everonce/everonce/store/memstore"
	"github.com/everonce/everonce/store/sqlitestore"
)

// growthClients is how many clients send the requests.
const growthClients = 1000

// growth is what is kept of many requests by few clients, while nothing of it has expired: with a key each, and with
// sessions.
type growth struct {
	pg       *pgBench
	dir      string
	requests int
	rows     []grown
}

type grown struct {
	store, way  string
	rows, bytes int64
}

func openGrowth(ctx context.Context, dir string) ([]measured, func() error, error) {
	pg, err := openPostgres(ctx, "")
	if err != nil {
		return nil, nil, errors.Join(err, pg.close())
	}
	return []measured{&growth{pg: pg, dir: dir}}, pg.close, nil
}

func (*growth) name() string { return "keys and sessions" }

func (*growth) promised() []target { return nil }

func (g *growth) print() {
	format := "%-10s %-34s %-36s %10s %12s %12s\n"
	fmt.Printf(format, "store", "mode", "way", "rows", "bytes", "B/request")
	for _, r := range g.rows {
		fmt.Printf(format, r.store, fmt.Sprintf("%d requests, %d clients", g.requests, growthClients), r.way,
			strconv.FormatInt(r.rows, 10), strconv.FormatInt(r.bytes, 10), fmt.Sprintf("%.2f", float64(r.bytes)/float64(g.requests)))
	}
	fmt.Println()
}

func (g *growth) run(ctx context.Context, p pace) error {
	g.requests = p.requests
	if err := errors.Join(g.keysInMemory(ctx), g.sessionsInMemory()); err != nil {
		return err
	}
	pg := func(tables ...string) func() (grown, error) {
		return func() (r grown, err error) {
			for _, table := range tables {
				var rows, bytes int64
				name := g.pg.schema + ".everonce_" + table
				err = errors.Join(err, g.pg.pool.QueryRow(ctx, "SELECT (SELECT count(*) FROM "+name+"), pg_total_relation_size($1::text::regclass)", name).Scan(&rows, &bytes))
				r.rows, r.bytes = r.rows+rows, r.bytes+bytes
			}
			return r, err
		}
	}
	keys, sessions := pg("record"), pg("session", "session_answer", "session_state")
	if err := errors.Join(g.keys(ctx, "PostgreSQL", transactKeys(g.pg.tx), keys), sessionsOf(ctx, g, "PostgreSQL", g.pg.tx, sessions)); err != nil {
		return err
	}
	for _, table := range []string{"record", "session", "session_answer", "session_state"} { // what autovacuum did not come to
		if _, err := g.pg.pool.Exec(ctx, "VACUUM FULL "+g.pg.schema+".everonce_"+table); err != nil {
			return err
		}
	}
	if err := errors.Join(g.add("PostgreSQL", "a key each, after VACUUM FULL", keys), g.add("PostgreSQL", "sessions, after VACUUM FULL", sessions)); err != nil {
		return err
	}
	if err := g.inSQLite(ctx, func(tx *everonce.TxReceiver[*sql.Tx], measure func() (grown, error)) error {
		return g.keys(ctx, "SQLite", transactKeys(tx), measure)
	}, "record"); err != nil {
		return err
	}
	return g.inSQLite(ctx, func(tx *everonce.TxReceiver[*sql.Tx], measure func() (grown, error)) error {
		return sessionsOf(ctx, g, "SQLite", tx, measure)
	}, "session", "session_answer", "session_state")
}

// inSQLite fills these tables in a separate file.
func (g *growth) inSQLite(ctx context.Context, fill func(tx *everonce.TxReceiver[*sql.Tx], measure func() (grown, error)) error, tables ...string) error {
	store, err := sqlitestore.Open(ctx, filepath.Join(g.dir, "growth-"+tables[0]+".db"), nil)
	if err != nil {
		return err
	}
	tx, err := everonce.NewTxReceiver(store, &everonce.Options{Codec: everonce.Raw()})
	if err == nil {
		err = fill(tx, func() (r grown, err error) {
			for _, table := range tables {
				var rows int64
				err = errors.Join(err, store.DB().QueryRowContext(ctx, "SELECT count(*) FROM everonce_"+table).Scan(&rows))
				r.rows += rows
			}
			return r, errors.Join(err, store.DB().QueryRowContext(ctx, "SELECT page_count * page_size FROM pragma_page_count, pragma_page_size").Scan(&r.bytes))
		})
	}
	return errors.Join(err, store.Close())
}

func (g *growth) add(store, way string, measure func() (grown, error)) error {
	r, err := measure()
	r.store, r.way = store, way
	g.rows = append(g.rows, r)
	return err
}

// transactKeys does a batch of operations with a key each, and no effect.
func transactKeys[Tx any](tx *everonce.TxReceiver[Tx]) func(ctx context.Context, items []everonce.BatchItem) error {
	work := everonce.EachItem(func(context.Context, Tx, int) ([]byte, error) { return sampleBytes, nil })
	return func(ctx context.Context, items []everonce.BatchItem) error {
		all, err := everonce.TransactBatch(ctx, tx, items, work)
		for _, r := range all {
			err = errors.Join(err, expect(r.Outcome, everonce.Executed, r.Err))
		}
		return err
	}
}

func (g *growth) keys(ctx context.Context, store string, do func(ctx context.Context, items []everonce.BatchItem) error, measure func() (grown, error)) error {
	var next atomic.Int64
	err := atOnce(8, func() error {
		for {
			last := next.Add(batchSize)
			if last > int64(g.requests) {
				return nil
			}
			items := make([]everonce.BatchItem, batchSize)
			for i := range items {
				n := last - int64(i)
				items[i].Key = everonce.Key{Scope: everonce.Scope("client/" + strconv.FormatInt(n%growthClients, 10)), ID: orderKey(n).ID}
				items[i].Fingerprint = everonce.FingerprintOf(n)
			}
			if err := do(ctx, items); err != nil {
				return err
			}
		}
	})
	return errors.Join(err, g.add(store, "a key each", measure))
}

// sessionsOf has clients send requests without an effect.
func sessionsOf[Tx any](ctx context.Context, g *growth, name string, tx *everonce.TxReceiver[Tx], measure func() (grown, error)) error {
	store, err := sqlsession.New(tx, session.Config{Lease: time.Hour}, &sqlsession.Options{Batch: 64})
	if err == nil {
		err = store.Migrate(ctx)
	}
	if err != nil {
		return err
	}
	idle := make(chan *sessionClient, growthClients)
	for range growthClients {
		c, err := registered(ctx, store)
		if err != nil {
			return err
		}
		idle <- c
	}
	work := func(context.Context, Tx, []byte) ([]byte, error) { return sampleBytes, nil }
	var next atomic.Int64
	err = atOnce(64, func() error {
		for next.Add(1) <= int64(g.requests) {
			c := <-idle
			command := c.next()
			a, err := store.Apply(ctx, &command, work)
			if err = errors.Join(err, a.Err.Or()); err != nil {
				return err
			}
			idle <- c
		}
		return nil
	})
	return errors.Join(err, g.add(name, "sessions", measure))
}

func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc) //nolint:gosec // it is not that large
}

func (g *growth) keysInMemory(ctx context.Context) error {
	before := heap()
	r, err := everonce.NewReceiver(memstore.New(&memstore.Options{MaxRecords: 2 * g.requests}), everonce.Refuse, &everonce.Options{Codec: everonce.Raw()})
	if err != nil {
		return err
	}
	for n := range int64(g.requests) {
		key := everonce.Key{Scope: everonce.Scope("client/" + strconv.FormatInt(n%growthClients, 10)), ID: orderKey(n).ID}
		res, err := everonce.Do(ctx, r, key, func(context.Context, *everonce.Attempt) ([]byte, error) { return sampleBytes, nil }, everonce.FingerprintOf(n))
		if err := expect(res.Outcome, everonce.Executed, err); err != nil {
			return err
		}
	}
	g.rows = append(g.rows, grown{"memory", "a key each", int64(g.requests), heap() - before})
	runtime.KeepAlive(r)
	return nil
}

func (g *growth) sessionsInMemory() error {
	before := heap()
	m, err := session.New(session.Config{Lease: time.Hour})
	if err != nil {
		return err
	}
	clients := make([]sessionClient, growthClients)
	for i := range clients {
		c := &clients[i]
		c.nonce[0], c.nonce[1] = byte(i), byte(i>>8)
		c.id = m.Apply(0, &session.Command{Op: session.Register, Nonce: c.nonce}, nil).Session
	}
	for n := range g.requests {
		command := clients[n%growthClients].next()
		if a := m.Apply(int64(n), &command, func() []byte { return append([]byte(nil), sampleBytes...) }); a.Err != 0 {
			return a.Err
		}
	}
	g.rows = append(g.rows, grown{"memory", "sessions", 2 * growthClients, heap() - before}) // a session, and its last answer
	runtime.KeepAlive(m)
	return nil
}

// atOnce runs as many at the same time, and returns the first error.
func atOnce(n int, do func() error) error {
	var group sync.WaitGroup
	var failed atomic.Pointer[error]
	for range n {
		group.Go(func() {
			if err := do(); err != nil {
				failed.CompareAndSwap(nil, &err)
			}
		})
	}
	group.Wait()
	if err := failed.Load(); err != nil {
		return *err
	}
	return nil
}
