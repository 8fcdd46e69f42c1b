package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/store/sqlitestore"
)

const (
	sqliteCallers   = 64
	sqliteTxCallers = 16
)

// sqliteBench is two files: our store with the application's tables in it, and one for what is done by hand.
type sqliteBench struct {
	store   *sqlitestore.Store
	alone   *sqlitestore.Store // a commit for each write
	grouped *everonce.Receiver
	single  *everonce.Receiver
	tx      *everonce.TxReceiver[*sql.Tx]
	hand    *byHand
}

func sqlite(ctx context.Context, dir string) ([]*contest, func() error, error) {
	b := &sqliteBench{}
	if err := b.open(ctx, dir); err != nil {
		return nil, nil, errors.Join(err, b.close())
	}
	return []*contest{b.guarded(), b.replays(), b.transactional()}, b.close, nil
}

func (b *sqliteBench) open(ctx context.Context, dir string) (err error) {
	if b.store, err = sqlitestore.Open(ctx, filepath.Join(dir, "grouped.db"), nil); err != nil {
		return err
	}
	if b.alone, err = sqlitestore.Open(ctx, filepath.Join(dir, "single.db"), &sqlitestore.Options{GroupLimit: 1}); err != nil {
		return err
	}
	opts := &everonce.Options{Codec: everonce.Raw(), StoreTimeout: time.Minute}
	if b.grouped, err = everonce.NewReceiver(b.store, everonce.Refuse, opts); err != nil {
		return err
	}
	if b.single, err = everonce.NewReceiver(b.alone, everonce.Refuse, opts); err != nil {
		return err
	}
	if b.tx, err = everonce.NewTxReceiver(b.store, opts); err != nil {
		return err
	}
	if err := fillAccounts(ctx, b.store.DB()); err != nil {
		return err
	}
	if b.hand, err = openByHand(ctx, filepath.Join(dir, "hand.db"), b.store.Schema()); err != nil {
		return err
	}
	return b.fill(ctx)
}

func fillAccounts(ctx context.Context, db *sql.DB) error {
	for _, text := range []string{
		"CREATE TABLE account (id INTEGER PRIMARY KEY, balance INTEGER NOT NULL) STRICT",
		"WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < " + strconv.Itoa(accounts) + ") INSERT INTO account SELECT i, 0 FROM n",
		"CREATE TABLE naive (scope TEXT, id TEXT, result BLOB, created_at INTEGER NOT NULL, PRIMARY KEY (scope, id)) STRICT, WITHOUT ROWID",
	} {
		if _, err := db.ExecContext(ctx, text); err != nil {
			return err
		}
	}
	return nil
}

// fill does the operations that are replayed later.
func (b *sqliteBench) fill(ctx context.Context) error {
	tx, err := b.store.DB().BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback() //nolint:errcheck // after the commit it does nothing
	for n := range int64(knownKeys) {
		key := knownKey(n)
		if _, err := everonce.DoTx(ctx, tx, b.tx, key, func(context.Context) ([]byte, error) { return sampleBytes, nil }); err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, "INSERT INTO naive VALUES (?, ?, ?, ?)", string(key.Scope), key.ID, sampleBytes, n); err != nil {
			return err
		}
	}
	return tx.Commit()
}

func (b *sqliteBench) close() error {
	var err error
	if b.hand != nil {
		err = b.hand.close()
	}
	for _, s := range []*sqlitestore.Store{b.store, b.alone} {
		if s != nil {
			err = errors.Join(err, s.Close())
		}
	}
	return err
}

// guarded: new keys. Bare is the same two statements, grouped, without the core.
func (b *sqliteBench) guarded() *contest {
	do := func(r *everonce.Receiver) func(context.Context, int64) error {
		return func(ctx context.Context, n int64) error {
			res, err := everonce.Do(ctx, r, orderKey(n), func(context.Context, *everonce.Attempt) ([]byte, error) { return sampleBytes, nil })
			return expect(res.Outcome, everonce.Executed, err)
		}
	}
	bare := &way{name: "bare: the same writes, grouped by hand", do: b.hand.claimAndComplete}
	naive := &way{name: "naive: check, work, then insert", do: func(ctx context.Context, n int64) error {
		key := mailKey(n)
		if err := b.unseen(ctx, key); err != nil {
			return err
		}
		return b.insert(ctx, b.store.DB(), key)
	}}
	single := &way{name: "ours, ungrouped", do: do(b.single)}
	grouped := &way{name: "ours", do: do(b.grouped)}
	return &contest{
		store: "SQLite", mode: "guarded, new keys", callers: sqliteCallers,
		ways: []*way{bare, naive, single, grouped},
		targets: []target{
			grouped.atLeast(4, single, "SQLite, guarded: of the ungrouped"),
			grouped.atLeast(0.6, bare, "SQLite, guarded: of the same statements grouped without the core"),
		},
	}
}

type execer interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

func (b *sqliteBench) insert(ctx context.Context, e execer, key everonce.Key) error {
	_, err := e.ExecContext(ctx, "INSERT INTO naive VALUES (?, ?, ?, ?)", string(key.Scope), key.ID, sampleBytes, time.Now().UnixMicro())
	return err
}

func (b *sqliteBench) seen(ctx context.Context, key everonce.Key) (found bool, err error) {
	tx, err := b.store.DB().BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
	if err != nil {
		return false, err
	}
	defer tx.Rollback() //nolint:errcheck // it only reads
	var result []byte
	err = tx.QueryRowContext(ctx, "SELECT result FROM naive WHERE scope = ? AND id = ?", string(key.Scope), key.ID).Scan(&result)
	if errors.Is(err, sql.ErrNoRows) {
		return false, nil
	}
	return err == nil, err
}

func (b *sqliteBench) unseen(ctx context.Context, key everonce.Key) error {
	found, err := b.seen(ctx, key)
	if err == nil && found {
		err = errors.New("the key is not new")
	}
	return err
}

func (b *sqliteBench) replays() *contest {
	bare := &way{name: "bare: SELECT", do: func(ctx context.Context, n int64) error {
		found, err := b.seen(ctx, knownKey(n))
		if err == nil && !found {
			err = errors.New("the key is missing")
		}
		return err
	}}
	ours := &way{name: "ours", do: func(ctx context.Context, n int64) error {
		res, err := everonce.Do(ctx, b.grouped, knownKey(n), func(context.Context, *everonce.Attempt) ([]byte, error) { return sampleBytes, nil })
		return expect(res.Outcome, everonce.Replayed, err)
	}}
	return &contest{store: "SQLite", mode: "guarded, replay", callers: sqliteTxCallers, ways: []*way{bare, ours}}
}

// transactional: new keys, and an effect in the same file.
func (b *sqliteBench) transactional() *contest {
	work := func(ctx context.Context, tx *sql.Tx) ([]byte, error) {
		_, err := tx.ExecContext(ctx, "UPDATE account SET balance = balance - 1 WHERE id = ?", mathrand.IntN(accounts)+1)
		return sampleBytes, err
	}
	inTx := func(ctx context.Context, fn func(tx *sql.Tx) error) error {
		tx, err := b.store.DB().BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer tx.Rollback() //nolint:errcheck // after the commit it does nothing
		if err := fn(tx); err != nil {
			return err
		}
		return tx.Commit()
	}
	txKey := func(n int64) everonce.Key { return everonce.Key{Scope: "tenant/tx", ID: orderKey(n).ID} }
	transact := func(opts ...everonce.CallOption) func(context.Context, int64) error {
		return func(ctx context.Context, n int64) error {
			res, err := everonce.Transact(ctx, b.tx, txKey(n), work, opts...)
			return expect(res.Outcome, everonce.Executed, err)
		}
	}
	bare := &way{name: "bare: BEGIN, UPDATE, COMMIT", do: func(ctx context.Context, _ int64) error {
		return inTx(ctx, func(tx *sql.Tx) error { _, err := work(ctx, tx); return err })
	}}
	naive := &way{name: "naive: check, work, then insert", do: func(ctx context.Context, n int64) error {
		key := txKey(n)
		if err := b.unseen(ctx, key); err != nil {
			return err
		}
		return inTx(ctx, func(tx *sql.Tx) error {
			if _, err := work(ctx, tx); err != nil {
				return err
			}
			return b.insert(ctx, tx, key)
		})
	}}
	return &contest{
		store: "SQLite", mode: "transactional, new keys", callers: sqliteTxCallers,
		ways: []*way{bare, naive, {name: "ours, claim first", do: transact()}, {name: "ours, optimistic", do: transact(everonce.Optimistic())}},
	}
}

// byHand groups the writes of many callers into shared commits, with nothing of ours around them.
type byHand struct {
	db    *sql.DB
	conn  *sql.Conn
	queue chan *handWrite
	ended chan struct{}

	claim, complete *sql.Stmt
}

type handWrite struct {
	stmt *sql.Stmt
	args []any
	err  error
	done chan struct{}
}

// handGroup is how many writes share a commit at the most.
const handGroup = 256

func openByHand(ctx context.Context, path, schema string) (*byHand, error) {
	db, err := sql.Open("sqlite", "file:"+path+"?_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)&_pragma=busy_timeout(5000)")
	if err != nil {
		return nil, err
	}
	h := &byHand{db: db, queue: make(chan *handWrite, handGroup), ended: make(chan struct{})}
	if h.conn, err = db.Conn(ctx); err != nil {
		return nil, err
	}
	for _, text := range strings.Split(schema, ";\n") {
		if strings.TrimSpace(text) == "" {
			continue
		}
		if _, err := h.conn.ExecContext(ctx, text); err != nil {
			return nil, fmt.Errorf("%s: %w", text, err)
		}
	}
	// The statements of a claim and of a completion, with the conditions that make them safe.
	if h.claim, err = h.conn.PrepareContext(ctx, `INSERT INTO everonce_record
		(id, scope, name, state, token, nonce, owner, attempt, rev, steps, format, created_at, updated_at, claimed_at, lease_until)
		VALUES (?, ?, ?, 1, ?, ?, ?, 1, 1, 0, 1, ?, ?, ?, ?) ON CONFLICT (id) DO NOTHING`); err != nil {
		return nil, err
	}
	if h.complete, err = h.conn.PrepareContext(ctx, `UPDATE everonce_record SET state = 4, rev = rev + 1, updated_at = ?, completed_at = ?, result_until = ?,
		purge_at = ?, due_at = ?, lease_until = NULL, result_kind = 1, result_codec = 'raw', result_data = ?
		WHERE id = ? AND token = ? AND nonce = ? AND state = 1`); err != nil {
		return nil, err
	}
	go h.run()
	return h, nil
}

// close ends the goroutine, if there is one, and the database.
func (h *byHand) close() error {
	close(h.queue)
	<-h.ended
	return errors.Join(h.claim.Close(), h.complete.Close(), h.conn.Close(), h.db.Close())
}

func (h *byHand) run() {
	defer close(h.ended)
	for w := range h.queue {
		group := []*handWrite{w}
		for len(group) < handGroup && len(h.queue) > 0 {
			if next, ok := <-h.queue; ok {
				group = append(group, next)
			}
		}
		err := h.write(group)
		for _, w := range group {
			w.err = errors.Join(w.err, err)
			close(w.done)
		}
	}
}

func (h *byHand) write(group []*handWrite) error {
	ctx := context.Background()
	if _, err := h.conn.ExecContext(ctx, "BEGIN IMMEDIATE"); err != nil {
		return err
	}
	for _, w := range group {
		res, err := w.stmt.ExecContext(ctx, w.args...)
		if err == nil {
			var rows int64
			if rows, err = res.RowsAffected(); err == nil && rows != 1 {
				err = errors.New("nothing was written")
			}
		}
		w.err = err
	}
	_, err := h.conn.ExecContext(ctx, "COMMIT")
	return err
}

func (h *byHand) do(stmt *sql.Stmt, args ...any) error {
	w := &handWrite{stmt: stmt, args: args, done: make(chan struct{})}
	h.queue <- w
	<-w.done
	return w.err
}

func (h *byHand) claimAndComplete(_ context.Context, n int64) error {
	key := orderKey(n)
	id, nonce := key.RecordID(), driver.NewNonce()
	now := time.Now().UnixMicro()
	lease, day := (30 * time.Second).Microseconds(), (24 * time.Hour).Microseconds()
	if err := h.do(h.claim, id[:], string(key.Scope), key.ID, now, nonce[:], "bench", now, now, now, now+lease); err != nil {
		return err
	}
	done := time.Now().UnixMicro()
	return h.do(h.complete, done, done, done+day, done+2*day, done+day, sampleBytes, id[:], now, nonce[:])
}
