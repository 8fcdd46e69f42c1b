package mysqlstore_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/internal/sqldb"
	"github.com/everonce/everonce/store/mysqlstore"
)

// begin begins a transaction of the caller's.
func (b *bank) begin() *sql.Tx {
	b.t.Helper()
	tx, err := b.db.BeginTx(b.t.Context(), nil)
	noErr(b.t, err)
	b.t.Cleanup(func() { _ = tx.Rollback() })
	return tx
}

// doTx records an operation in a transaction of the caller's.
func (b *bank) doTx(tx *sql.Tx, id string) (everonce.Result[int], error) {
	return everonce.DoTx(b.t.Context(), tx, b.tr, order(id), func(context.Context) (int, error) { return 1, nil })
}

// othersRun runs operations with many new keys, none of which may be held by what the test has open.
func (b *bank) othersRun() {
	b.t.Helper()
	for i := range 40 {
		_, err := everonce.Transact(b.t.Context(), b.tr, order(fmt.Sprint("other ", i)), func(context.Context, *sql.Tx) (int, error) { return i, nil })
		noErr(b.t, err)
	}
}

// A claim whose row is gone with a savepoint does not write over a record that came in between.
func TestAClaimThatIsUndoneWritesOverNobody(t *testing.T) {
	onEach(t, testAClaimThatIsUndoneWritesOverNobody)
}

func testAClaimThatIsUndoneWritesOverNobody(t *testing.T, on server) {
	b := newBank(t, on, nil)
	ctx := t.Context()
	h, err := b.Join(ctx, b.begin())
	noErr(t, err)
	noErr(t, h.Savepoint(ctx, "s"))
	mine := driver.ClaimRequest{ID: driver.RecordID{7}, Scope: "orders", Name: "7", Nonce: driver.Nonce{1}}
	claim, err := h.Claim(ctx, mine)
	noErr(t, err)
	noErr(t, h.RollbackTo(ctx, "s"))

	theirs := mine
	theirs.Nonce = driver.Nonce{2}
	complete := driver.CompleteRequest{ID: mine.ID, Nonce: theirs.Nonce, Result: driver.SavedResult{Kind: driver.ResultValue, Data: []byte("theirs")}, Lifetime: driver.Lifetime{Retention: time.Hour}}
	other, _, err := b.Begin(ctx, driver.BeginRequest{})
	noErr(t, err)
	_, err = other.Commit(ctx, driver.CommitRequest{Record: &theirs, Complete: &complete})
	noErr(t, err)

	complete.Nonce, complete.Token = mine.Nonce, claim.Record.Token
	if _, err = h.Record(ctx, driver.RecordRequest{Claim: mine, Complete: complete}); !errors.Is(err, driver.ErrConflict) {
		t.Errorf("a record over another attempt's: %v, want ErrConflict", err)
	}
	if got, err := b.Get(ctx, driver.GetRequest{ID: mine.ID}); err != nil || got.Record.Nonce != theirs.Nonce {
		t.Errorf("the record has nonce %v, %v; want the other's", got.Record.Nonce, err)
	}
}

// A rejected operation is recorded after its claim was undone, which must not lock the gap in which its key lies.
func TestARejectedOperationLocksItsKeyOnly(t *testing.T) {
	onEach(t, testARejectedOperationLocksItsKeyOnly)
}

func testARejectedOperationLocksItsKeyOnly(t *testing.T, on server) {
	b := newBank(t, on, nil)
	_, err := everonce.DoTx(t.Context(), b.begin(), b.tr, order("7"), func(context.Context) (int, error) {
		return 0, everonce.Permanent("no-money", errors.New("no money"), nil)
	})
	if _, rejected := errors.AsType[*everonce.PermanentError](err); !rejected {
		t.Fatal(err)
	}
	b.othersRun()
}

// A purge locks the rows that it removes, and nothing beside them, until it has committed.
func TestAPurgeLocksWhatItRemovesOnly(t *testing.T) { onEach(t, testAPurgeLocksWhatItRemovesOnly) }

func testAPurgeLocksWhatItRemovesOnly(t *testing.T, on server) {
	b := newBank(t, on, nil)
	ctx := t.Context()
	for i := range 20 {
		_, err := everonce.Transact(ctx, b.tr, order(fmt.Sprint(i)), func(context.Context, *sql.Tx) (int, error) { return i, nil }, everonce.WithLifetime(everonce.Lifetime{Retention: 1000}))
		noErr(t, err)
	}
	purging, held := b.heldAtCommit()
	purged := make(chan error, 1)
	go func() {
		res, err := purging.Purge(ctx, driver.PurgeRequest{})
		if err == nil && res.Records != 20 {
			err = fmt.Errorf("%d records were purged, want 20", res.Records)
		}
		purged <- err
	}()
	select {
	case <-held.committing:
	case err := <-purged:
		t.Fatalf("the purge ended before its commit: %v", err)
	}
	b.othersRun()
	close(held.skipFailed)
	noErr(t, <-purged)
}

// A commit that has no answer when its caller's context ends is left to itself: on a dead line it would hold the caller
// up for as long as the kernel tries.
func TestACommitEndsWithItsContext(t *testing.T) { onEach(t, testACommitEndsWithItsContext) }

func testACommitEndsWithItsContext(t *testing.T, on server) {
	b := newBank(t, on, nil)
	store, held := b.heldAtCommit()
	defer close(held.skipFailed)
	_, err := everonce.Transact(t.Context(), b.tr, order("7"), func(context.Context, *sql.Tx) (int, error) { return 7, nil }, everonce.WithLifetime(everonce.Lifetime{Retention: 1000}))
	noErr(t, err)
	for what, write := range map[string]func(context.Context) error{
		"a purge": func(ctx context.Context) error { _, err := store.Purge(ctx, driver.PurgeRequest{}); return err },
		"a write beside the store": func(ctx context.Context) error {
			return store.SQL().Write(ctx, func(context.Context, sqldb.Conn) error { return nil })
		},
	} {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		wrote := make(chan error, 1)
		go func() { wrote <- write(ctx) }()
		select {
		case <-held.committing:
		case err := <-wrote:
			t.Fatalf("%s ended before its commit: %v", what, err)
		}
		cancel()
		select {
		case err := <-wrote:
			if !errors.Is(err, context.Canceled) {
				t.Errorf("%s: %v, want the context's error", what, err)
			}
		case <-time.After(3 * time.Minute):
			t.Fatalf("%s waits for its commit past its context", what)
		}
	}
}

// heldAtCommit is a connection on which the first COMMIT waits.
type heldAtCommit struct {
	net.Conn
	committing, skipFailed chan struct{}
}

// heldAtCommit returns a store on the bank's database whose connections are so.
func (b *bank) heldAtCommit() (*mysqlstore.Store, *heldAtCommit) {
	b.t.Helper()
	held := heldAtCommit{committing: make(chan struct{}), skipFailed: make(chan struct{})}
	store, err := mysqlstore.New(b.on.open(b.t, func(c *mysql.Config) {
		c.DBName = b.name
		c.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
			var d net.Dialer
			conn, err := d.DialContext(ctx, network, addr)
			if err != nil {
				return nil, err
			}
			held := held
			held.Conn = conn
			return &held, nil
		}
	}), nil)
	noErr(b.t, err)
	return store, &held
}

func (c *heldAtCommit) Write(p []byte) (int, error) {
	if len(p) > 5 && string(p[5:]) == "COMMIT" {
		select {
		case c.committing <- struct{}{}:
			<-c.skipFailed
		case <-c.skipFailed:
		}
	}
	return c.Conn.Write(p)
}

// An attempt of the guarded mode can end while a transaction is open that found it running.
func TestARefusedClaimLetsTheAttemptEnd(t *testing.T) { onEach(t, testARefusedClaimLetsTheAttemptEnd) }

func testARefusedClaimLetsTheAttemptEnd(t *testing.T, on server) {
	b := newBank(t, on, nil)
	ctx := t.Context()
	receiver, err := everonce.NewReceiver(b.Store, everonce.Refuse, nil)
	noErr(t, err)
	_, err = everonce.Do(ctx, receiver, order("7"), func(context.Context, *everonce.Attempt) (int, error) {
		_, err := b.doTx(b.begin(), "7")
		if !errors.Is(err, everonce.ErrInProgress) {
			t.Errorf("DoTx beside an attempt: %v, want ErrInProgress", err)
		}
		return 1, nil
	})
	noErr(t, err)
}

// Where each read locks, a duplicate does not wait either.
func TestADuplicateAtSerializableDoesNotWait(t *testing.T) {
	onEach(t, testADuplicateAtSerializableDoesNotWait)
}

func testADuplicateAtSerializableDoesNotWait(t *testing.T, on server) {
	b := newBank(t, on, func(c *mysql.Config) { c.Params = map[string]string{on.isolation(): "'SERIALIZABLE'"} })
	_, err := b.doTx(b.begin(), "7")
	noErr(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 40*time.Second)
	defer cancel()
	_, err = everonce.Transact(ctx, b.tr, order("7"), func(context.Context, *sql.Tx) (int, error) { return 1, nil })
	if !errors.Is(err, everonce.ErrInProgress) {
		t.Errorf("a duplicate: %v, want ErrInProgress", err)
	}
}

// The keys of a batch that others hold take it no time that the rest would lack: on MariaDB, where no claim waits.
func TestABatchBesideManyHeldKeys(t *testing.T) {
	b := newBank(t, mariaDB(t), nil)
	var err error
	b.tr, err = everonce.NewTxReceiver(b.Store, &everonce.Options{StoreTimeout: 2 * time.Second})
	noErr(t, err)
	open := b.begin()
	var items []everonce.BatchItem
	for i := range 105 {
		id := fmt.Sprint(i)
		if i < 100 {
			_, err := b.doTx(open, id)
			noErr(t, err)
		}
		items = append(items, everonce.BatchItem{Key: order(id)})
	}
	all, err := everonce.TransactBatch(t.Context(), b.tr, items, everonce.EachItem(func(context.Context, *sql.Tx, int) (int, error) { return 1, nil }))
	noErr(t, err)
	for i, res := range all {
		if held := i < 100; held && !errors.Is(res.Err, everonce.ErrInProgress) || !held && res.Outcome != everonce.Executed {
			t.Errorf("item %d: %v, %v", i, res.Outcome, res.Err)
		}
	}
}

// A session in which a duplicate would read what is not committed, or nothing would be, is refused by name.
func TestSessionsThatAreRefused(t *testing.T) { onEach(t, testSessionsThatAreRefused) }

func testSessionsThatAreRefused(t *testing.T, on server) {
	for param, value := range map[string]string{on.isolation(): "'READ-UNCOMMITTED'", "autocommit": "0"} {
		b := newBank(t, on, nil)
		store, err := mysqlstore.New(on.open(t, func(c *mysql.Config) {
			c.DBName, c.Params = b.name, map[string]string{param: value}
		}), nil)
		noErr(t, err)
		want := strings.ToUpper(strings.NewReplacer("tx_", "", "transaction_", "", "'", "").Replace(param))
		if err := store.Migrate(t.Context()); !errors.Is(err, everonce.ErrStore) || !strings.Contains(strings.ToUpper(err.Error()), want) {
			t.Errorf("Migrate, %s=%s: %v, want ErrStore that names it", param, value, err)
		}
		_, err = store.Claim(t.Context(), driver.ClaimRequest{ID: driver.RecordID{7}, Nonce: driver.Nonce{1}, Lease: time.Minute})
		if !errors.Is(err, everonce.ErrStore) || !strings.Contains(strings.ToUpper(err.Error()), want) {
			t.Errorf("%s=%s: %v, want ErrStore that names it", param, value, err)
		}
	}
	b := newBank(t, on, nil)
	_, err := b.doTx(b.begin(), "7")
	noErr(t, err)
	mine, err := b.db.Conn(t.Context())
	noErr(t, err)
	defer mine.Close() //nolint:errcheck // it goes back to the pool
	_, err = mine.ExecContext(t.Context(), "SET SESSION TRANSACTION ISOLATION LEVEL READ UNCOMMITTED")
	noErr(t, err)
	tx, err := mine.BeginTx(t.Context(), nil)
	noErr(t, err)
	defer tx.Rollback() //nolint:errcheck // nothing was written
	if res, err := b.doTx(tx, "7"); !errors.Is(err, everonce.ErrStore) || !strings.Contains(fmt.Sprint(err), "READ UNCOMMITTED") {
		t.Errorf("DoTx at read uncommitted: %v, %v; want ErrStore that names it", res.Outcome, err)
	}
}

// Once the store was used alone, if only by Migrate, a transaction of another handle is refused before anything is sent
// in it.
func TestATransactionOfAnotherHandle(t *testing.T) { onEach(t, testATransactionOfAnotherHandle) }

func testATransactionOfAnotherHandle(t *testing.T, on server) {
	b := newBank(t, on, nil)
	tx, err := on.open(t, nil).BeginTx(t.Context(), nil)
	noErr(t, err)
	defer tx.Rollback() //nolint:errcheck // nothing was written
	if res, err := b.doTx(tx, "8"); res.Outcome != everonce.Invalid || !errors.Is(err, everonce.ErrOtherStore) {
		t.Errorf("%v, %v; want ErrOtherStore", res.Outcome, err)
	}
}
