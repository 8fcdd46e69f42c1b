package sqlitestore

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/internal/sqldb"
	"github.com/everonce/everonce/internal/sqlstore"
)

// counting is the driver, writing down the statements that it is asked for.
type counting struct {
	*database
	mu   sync.Mutex
	told []string
}

func (c *counting) note(what string, calls []*sqldb.Call) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, call := range calls {
		c.told = append(c.told, what+call.Statement.Name)
	}
}

func (c *counting) take() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	told := strings.Join(c.told, " ")
	c.told = nil
	return told
}

func (c *counting) Read(ctx context.Context, calls ...*sqldb.Call) error {
	c.note("reader:", calls)
	return c.database.Read(ctx, calls...)
}

func (c *counting) Write(ctx context.Context, op func(context.Context, sqldb.Conn) error) error {
	return c.database.Write(ctx, func(ctx context.Context, conn sqldb.Conn) error { return op(ctx, countingConn{conn, c}) })
}

type countingConn struct {
	sqldb.Conn
	c *counting
}

func (c countingConn) Send(ctx context.Context, calls ...*sqldb.Call) error {
	c.c.note("", calls)
	return c.Conn.Send(ctx, calls...)
}

func (c *counting) Begin(ctx context.Context, opts sqlstore.BeginOptions, first ...*sqldb.Call) (sqldb.TxConn[*sql.Tx], error) {
	c.note("begin+", append([]*sqldb.Call{{Statement: &sqldb.Statement{}}}, first...))
	conn, err := c.database.Begin(ctx, opts, first...)
	if conn == nil {
		return nil, err
	}
	return countingTx{conn, c}, err
}

func (c *counting) Join(ctx context.Context, tx *sql.Tx) (sqldb.TxConn[*sql.Tx], error) {
	conn, err := c.database.Join(ctx, tx)
	if conn == nil {
		return nil, err
	}
	return countingTx{conn, c}, err
}

func (c *counting) LockKey(tx sqldb.TxConn[*sql.Tx], id driver.RecordID) bool {
	return c.database.LockKey(tx.(countingTx).TxConn, id)
}

type countingTx struct {
	sqldb.TxConn[*sql.Tx]
	c *counting
}

func (c countingTx) Send(ctx context.Context, calls ...*sqldb.Call) error {
	c.c.note("", calls)
	return c.TxConn.Send(ctx, calls...)
}

func (c countingTx) Commit(ctx context.Context, last ...*sqldb.Call) error {
	c.c.note("commit+", append(slices.Clone(last), &sqldb.Call{Statement: &sqldb.Statement{}}))
	return c.TxConn.Commit(ctx, last...)
}

func (c countingTx) Rollback(ctx context.Context) error {
	c.c.note("rollback", []*sqldb.Call{{Statement: &sqldb.Statement{}}})
	return c.TxConn.Rollback(ctx)
}

// The number of statements of each call, which is its cost. The reference quotes this table.
func TestStatementsPerCall(t *testing.T) {
	d := openTest(t, nil).db
	c := &counting{database: d}
	s := sqlstore.New[*sql.Tx](c)
	ctx := t.Context()
	guarded, err := everonce.NewReceiver(s, everonce.Refuse, nil)
	if err != nil {
		t.Fatal(err)
	}
	tr, err := everonce.NewTxReceiver[*sql.Tx](s, nil)
	if err != nil {
		t.Fatal(err)
	}
	key := func(id string) everonce.Key { return everonce.Key{Scope: "t", ID: id} }
	do := func(id string) {
		if _, err := everonce.Do(ctx, guarded, key(id), func(context.Context, *everonce.Attempt) (int, error) { return 1, nil }); err != nil {
			t.Fatal(err)
		}
	}
	step := func(id string) {
		if _, err := everonce.Do(ctx, guarded, key(id), func(ctx context.Context, a *everonce.Attempt) (int, error) {
			return everonce.Step(ctx, a, "mail", func(context.Context) (int, error) { return 1, nil })
		}); err != nil {
			t.Fatal(err)
		}
	}
	stepTx := func(id string) {
		if _, err := everonce.Do(ctx, guarded, key(id), func(ctx context.Context, a *everonce.Attempt) (int, error) {
			return everonce.StepTx(ctx, a, tr, "charge", func(context.Context, *sql.Tx) (int, error) { return 1, nil })
		}); err != nil {
			t.Fatal(err)
		}
	}
	transact := func(id string, opts ...everonce.CallOption) {
		if _, err := everonce.Transact(ctx, tr, key(id), func(context.Context, *sql.Tx) (int, error) { return 1, nil }, opts...); err != nil {
			t.Fatal(err)
		}
	}
	doTx := func(id string) {
		tx, err := d.db.BeginTx(ctx, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer tx.Rollback() //nolint:errcheck // committed below
		if _, err := everonce.DoTx(ctx, tx, tr, key(id), func(context.Context) (int, error) { return 1, nil }); err != nil {
			t.Fatal(err)
		}
		if err := tx.Commit(); err != nil {
			t.Fatal(err)
		}
	}
	do("first") // checks the schema's version and the identity
	transact("first tx")
	c.take()
	for _, row := range []struct {
		what string
		call func()
		want string
	}{
		{"Do, new key", func() { do("a") }, "claim complete"},
		{"Do, replay", func() { do("a") }, "claim read"},
		{"Do with a step", func() { step("b") }, "claim save_step put_step save_step put_step complete"},
		{"Do with a StepTx", func() { stepTx("c") }, "claim begin+ commit+save_step commit+put_step_once commit+ complete"},
		{"Transact, new key", func() { transact("d") }, "begin+ begin+probe commit+finish commit+"},
		{"Transact, replay", func() { transact("d") }, "begin+ begin+probe read rollback"},
		{"Transact optimistic, new key", func() { transact("e", everonce.Optimistic()) }, "reader:probe begin+ commit+finish commit+"},
		{"Transact optimistic, replay", func() { transact("e", everonce.Optimistic()) }, "reader:probe reader:read"},
		{"DoTx, new key", func() { doTx("f") }, "savepoint probe finish savepoint"},
		{"DoTx, replay", func() { doTx("f") }, "savepoint probe read savepoint"},
	} {
		row.call()
		if got := c.take(); got != row.want {
			t.Errorf("%s: %q, want %q", row.what, got, row.want)
		}
	}
	// Where duplicates are frequent they are answered by a read, and do not wait for the writer.
	for range 30 {
		do("a")
	}
	c.take()
	do("a")
	if got := c.take(); got != "reader:read" {
		t.Errorf("a replay among replays: %q, want one read", got)
	}
	transact("d")
	if got := c.take(); got != "reader:read" {
		t.Errorf("a replay of Transact among replays: %q, want one read", got)
	}
	for i := range 60 {
		do(fmt.Sprint("new", i))
	}
	c.take()
	do("another")
	if got := c.take(); got != "claim complete" {
		t.Errorf("a new key among new keys: %q, want no read first", got)
	}
}

// A replay with its result reads no more than it must, however large the result.
func TestLargeResultsSurviveTheRoundTrip(t *testing.T) {
	s := openTest(t, nil)
	ctx := t.Context()
	for _, n := range []int{0, 1, 4096, 1 << 20, 16 << 20} {
		req := claimOf(fmt.Sprint(n))
		claim, err := s.Claim(ctx, req)
		if err != nil {
			t.Fatal(err)
		}
		data := make([]byte, n)
		for i := range data {
			data[i] = byte(i * 7)
		}
		_, err = s.Complete(ctx, driver.CompleteRequest{
			ID: req.ID, Token: claim.Record.Token, Nonce: req.Nonce, Lifetime: driver.Lifetime{Retention: time.Hour},
			Result: driver.SavedResult{Kind: driver.ResultValue, Codec: "raw", Data: data},
		})
		if err != nil {
			t.Fatal(err)
		}
		got, err := s.Get(ctx, driver.GetRequest{ID: req.ID})
		if err != nil || got.Record.Result.Data == nil || !slices.Equal(got.Record.Result.Data, data) {
			t.Errorf("%d bytes came back as %d, %v", n, len(got.Record.Result.Data), err)
		}
	}
}
