package natural

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/everonce/everonce/store/sqlitestore"
)

// open returns a database with the schema and some rows.
func open(tb testing.TB) *sql.DB {
	tb.Helper()
	store, err := sqlitestore.Open(tb.Context(), filepath.Join(tb.TempDir(), "shop.db"), nil)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := store.Close(); err != nil {
			tb.Error(err)
		}
	})
	exec(tb, store.DB(), Schema)
	exec(tb, store.DB(), `
		INSERT INTO account (id, balance) VALUES ('alice', 50), ('bob', 70);
		INSERT INTO profile VALUES ('alice', 'Alice', 'alice@example.com'), ('bob', 'Bob', 'bob@example.com');
		INSERT INTO cart_line VALUES ('c1', 'tea', 1);
		INSERT INTO stock VALUES ('tea', 10);
		INSERT INTO orders (id, status) VALUES ('o1', 'paid'), ('o2', 'new'), ('o3', 'delivered'), ('o4', 'packed');
		INSERT INTO orders (id, status, shipped_at) VALUES ('o5', 'shipped', '2001-02-03T04:05:06.789Z')`)
	return store.DB()
}

func exec(tb testing.TB, db *sql.DB, text string) {
	tb.Helper()
	if _, err := db.ExecContext(tb.Context(), text); err != nil {
		tb.Fatal(err)
	}
}

var tables = []string{"account", "profile", "cart_line", "comment", "stock", "reservation", "orders", "deposit", "payment"}

// dump returns all rows of all tables.
func dump(t *testing.T, db *sql.DB) string {
	t.Helper()
	var b strings.Builder
	for _, table := range tables {
		rows, err := db.QueryContext(t.Context(), `SELECT * FROM `+table+` ORDER BY 1, 2`)
		if err != nil {
			t.Fatal(err)
		}
		columns, err := rows.Columns()
		if err != nil {
			t.Fatal(err)
		}
		for rows.Next() {
			row := make([]any, len(columns))
			for i := range row {
				row[i] = new(sql.NullString)
			}
			if err := rows.Scan(row...); err != nil {
				t.Fatal(err)
			}
			fmt.Fprint(&b, table)
			for _, v := range row {
				fmt.Fprintf(&b, " %q", v.(*sql.NullString).String)
			}
			b.WriteByte('\n')
		}
		if err := errors.Join(rows.Err(), rows.Close()); err != nil {
			t.Fatal(err)
		}
	}
	return b.String()
}

// state returns what an operation leaves when it was sent that often, one after the other; and whether that
// changed anything.
func state(t *testing.T, times int, op func(context.Context, DB) error) (after string, changed bool) {
	t.Helper()
	db := open(t)
	before := dump(t, db)
	for range times {
		if err := op(t.Context(), db); err != nil {
			t.Fatal(err)
		}
	}
	after = dump(t, db)
	return after, after != before
}

// wantNatural fails unless the operation leaves the same however often it is sent, one after the other, at
// once, and in transactions.
func wantNatural(t *testing.T, op func(context.Context, DB) error) {
	t.Helper()
	once, changed := state(t, 1, op)
	if !changed {
		t.Error("sent once, it changed nothing")
	}
	if thrice, _ := state(t, 3, op); thrice != once {
		t.Errorf("sent three times it left\n%s\nand once\n%s", thrice, once)
	}
	db := open(t)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			if err := op(t.Context(), db); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if at := dump(t, db); at != once {
		t.Errorf("sent four times at once it left\n%s\nand once\n%s", at, once)
	}
	inTx, _ := state(t, 2, func(ctx context.Context, db DB) error {
		tx, err := db.(*sql.DB).BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		return errors.Join(op(ctx, tx), tx.Commit())
	})
	if inTx != once {
		t.Errorf("sent in two transactions it left\n%s\nand once\n%s", inTx, once)
	}
}

// TestUnnaturalShapes: what the page says is not idempotent is not, and is seen not to be.
func TestUnnaturalShapes(t *testing.T) {
	for name, text := range map[string]string{
		"balance + 100":     `UPDATE account SET balance = balance + 100 WHERE id = 'alice'`,
		"stock - 1":         `UPDATE stock SET on_hand = on_hand - 1 WHERE product = 'tea'`,
		"append without ID": `INSERT INTO comment VALUES (lower(hex(randomblob(16))), 'p1', 'hello')`,
		"shipped now":       `UPDATE orders SET shipped_at = strftime('%s', 'now') || hex(randomblob(4)) WHERE id = 'o1'`,
	} {
		op := func(ctx context.Context, db DB) error {
			_, err := db.ExecContext(ctx, text)
			return err
		}
		once, _ := state(t, 1, op)
		if twice, _ := state(t, 2, op); once == twice {
			t.Errorf("%s: sent twice it left the same as sent once: the test is blind", name)
		}
	}
}

func TestSet(t *testing.T) {
	wantNatural(t, func(ctx context.Context, db DB) error { return SetBalance(ctx, db, "alice", 100) })
}

func TestSetIfNewer(t *testing.T) {
	wantNatural(t, func(ctx context.Context, db DB) error {
		_, err := SetBalanceIfNewer(ctx, db, "alice", 100, 1)
		return err
	})
	db := open(t)
	for i, m := range []struct {
		cents, version int64
		set            bool
		balance        int64
	}{
		{100, 1, true, 100},
		{100, 1, false, 100},
		{300, 3, true, 300},
		{200, 2, false, 300}, // overtaken
		{100, 1, false, 300}, // a late duplicate: SetBalance would bring the old balance back
	} {
		set, err := SetBalanceIfNewer(t.Context(), db, "alice", m.cents, m.version)
		var balance int64
		if err == nil {
			err = db.QueryRowContext(t.Context(), `SELECT balance FROM account WHERE id = 'alice'`).Scan(&balance)
		}
		if err != nil || set != m.set || balance != m.balance {
			t.Errorf("message %d: set is %v and the balance %d (%v), want %v and %d", i, set, balance, err, m.set, m.balance)
		}
	}
}

func TestPut(t *testing.T) {
	for _, id := range []string{"alice", "carol"} { // there, and not there
		wantNatural(t, func(ctx context.Context, db DB) error {
			return PutProfile(ctx, db, Profile{id, "A. Person", "person@example.com"})
		})
	}
}

func TestDelete(t *testing.T) {
	wantNatural(t, func(ctx context.Context, db DB) error { return DeleteProfile(ctx, db, "alice") })
}

func TestAbsoluteQuantity(t *testing.T) {
	for _, quantity := range []int{3, 0} {
		wantNatural(t, func(ctx context.Context, db DB) error { return SetQuantity(ctx, db, "c1", "tea", quantity) })
	}
	wantNatural(t, func(ctx context.Context, db DB) error { return SetQuantity(ctx, db, "c1", "milk", 1) })
}

func TestShip(t *testing.T) {
	for _, order := range []string{"o1", "o4"} {
		wantNatural(t, func(ctx context.Context, db DB) error { return Ship(ctx, db, order) })
	}
	db := open(t)
	before := dump(t, db)
	if err := Ship(t.Context(), db, "o3"); err != nil {
		t.Errorf("an order that is delivered, shipped by a late duplicate: %v", err)
	}
	if err := Ship(t.Context(), db, "o2"); !errors.Is(err, ErrWrongStatus) {
		t.Errorf("an order that is not paid: %v", err)
	}
	if err := Ship(t.Context(), db, "o99"); !errors.Is(err, sql.ErrNoRows) {
		t.Errorf("an order that does not exist: %v", err)
	}
	if after := dump(t, db); after != before {
		t.Errorf("left\n%s\nand there was\n%s", after, before)
	}
}

func TestFirstTimeStays(t *testing.T) {
	db := open(t)
	first, err := MarkShipped(t.Context(), db, "o1")
	if err != nil || first == "" {
		t.Fatalf("%q, %v", first, err)
	}
	if again, err := MarkShipped(t.Context(), db, "o1"); err != nil || again != first {
		t.Errorf("shipped at %s, and then at %s (%v)", first, again, err)
	}
	// A time that is certainly not now.
	if at, err := MarkShipped(t.Context(), db, "o5"); err != nil || at != "2001-02-03T04:05:06.789Z" {
		t.Errorf("the time of the first shipping became %s (%v)", at, err)
	}
}
