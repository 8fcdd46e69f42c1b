package sqlitestore_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/store/sqlitestore"
)

// tempFile is a file in a separate folder.
func tempFile() (path string, remove func()) {
	dir, err := os.MkdirTemp("", "everonce")
	if err != nil {
		panic(err)
	}
	return filepath.Join(dir, "app.db"), func() { os.RemoveAll(dir) }
}

func ExampleOpen() {
	path, remove := tempFile()
	defer remove()

	store, err := sqlitestore.Open(context.Background(), path, nil)
	if err != nil {
		panic(err)
	}
	defer store.Close()
	receiver, err := everonce.NewReceiver(store, everonce.Refuse, nil)
	if err != nil {
		panic(err)
	}

	key := everonce.Key{Scope: "mails", ID: "welcome-7"}
	for range 2 { // the request comes twice
		res, err := everonce.Do(context.Background(), receiver, key, func(context.Context, *everonce.Attempt) (string, error) {
			fmt.Println("sending")
			return "sent", nil
		})
		fmt.Println(res.Value, res.Outcome, err)
	}
	// Output:
	// sending
	// sent executed <nil>
	// sent replayed <nil>
}

// The effect and the record of it commit together, in a transaction that the application begins.
func ExampleStore_DB() {
	path, remove := tempFile()
	defer remove()
	ctx := context.Background()

	store, err := sqlitestore.Open(ctx, path, nil)
	if err != nil {
		panic(err)
	}
	defer store.Close()
	db := store.DB()
	if _, err := db.ExecContext(ctx, "CREATE TABLE account (name TEXT PRIMARY KEY, balance INTEGER); INSERT INTO account VALUES ('ann', 100)"); err != nil {
		panic(err)
	}
	receiver, err := everonce.NewTxReceiver[*sql.Tx](store, nil)
	if err != nil {
		panic(err)
	}

	charge := func(order string) (everonce.Outcome, error) {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return 0, err
		}
		defer tx.Rollback()
		key := everonce.Key{Scope: "charges", ID: order}
		res, err := everonce.DoTx(ctx, tx, receiver, key, func(ctx context.Context) (int, error) {
			_, err := tx.ExecContext(ctx, "UPDATE account SET balance = balance - 30 WHERE name = 'ann'")
			return 30, err
		})
		if err != nil {
			return res.Outcome, err
		}
		return res.Outcome, tx.Commit()
	}
	for range 2 { // the order comes twice
		fmt.Println(charge("order-7"))
	}
	var balance int
	if err := db.QueryRowContext(ctx, "SELECT balance FROM account").Scan(&balance); err != nil {
		panic(err)
	}
	fmt.Println("balance", balance)
	// Output:
	// executed <nil>
	// replayed <nil>
	// balance 70
}

// The business table itself allows one payment for each order.
func ExampleInsertOnce() {
	path, remove := tempFile()
	defer remove()
	ctx := context.Background()

	store, err := sqlitestore.Open(ctx, path, nil)
	if err != nil {
		panic(err)
	}
	defer store.Close()
	db := store.DB()
	if _, err := db.ExecContext(ctx, "CREATE TABLE payment (id INTEGER PRIMARY KEY, order_id TEXT UNIQUE, cents INTEGER)"); err != nil {
		panic(err)
	}

	pay := func(order string, cents int) {
		paid, inserted, err := sqlitestore.InsertOnce(ctx, db, sqlitestore.Insert{
			Table:   "payment",
			Columns: []string{"order_id", "cents"}, Values: []any{order, cents},
			Key:       []string{"order_id"},
			Returning: []string{"cents"},
		}, func(r sqlitestore.Row) (cents int, err error) {
			return cents, r.Scan(&cents)
		})
		fmt.Println(paid, inserted, err)
	}
	pay("order-7", 3000)
	pay("order-7", 4500) // the same order again: what stands is the first
	// Output:
	// 3000 true <nil>
	// 3000 false <nil>
}

// A receiver whose work writes to SQLite alone may take its errors for what they prove.
func ExampleClassify() {
	path, remove := tempFile()
	defer remove()
	ctx := context.Background()

	store, err := sqlitestore.Open(ctx, path, nil)
	if err != nil {
		panic(err)
	}
	defer store.Close()
	receiver, err := everonce.NewReceiver(store, everonce.Refuse, &everonce.Options{Classify: sqlitestore.Classify})
	if err != nil {
		panic(err)
	}

	key := everonce.Key{Scope: "imports", ID: "file-7"}
	work := func(ctx context.Context, _ *everonce.Attempt) (int64, error) {
		res, err := store.DB().ExecContext(ctx, "INSERT INTO line VALUES (1)")
		if err != nil {
			return 0, err
		}
		return res.RowsAffected()
	}
	res, err := everonce.Do(ctx, receiver, key, work)
	fmt.Println(res.Outcome, errors.Is(err, everonce.ErrOutcomeUnknown)) // there is no such table: nothing took hold

	if _, err := store.DB().ExecContext(ctx, "CREATE TABLE line (n INTEGER)"); err != nil {
		panic(err)
	}
	res, err = everonce.Do(ctx, receiver, key, work)
	fmt.Println(res.Outcome, err)
	// Output:
	// failed false
	// executed <nil>
}
