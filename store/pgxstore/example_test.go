package pgxstore_test

import (
	"context"
	"database/sql"
	"fmt"
	"log"
	"os"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	_ "github.com/jackc/pgx/v5/stdlib"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/store/pgxstore"
)

// exampleURL is your own database. Here it is the database of the tests, with a schema in it.
func exampleURL() string { return os.Getenv("EVERONCE_TEST_POSTGRES_URL") }

// A charge in the same database as its record: however many times the request arrives, the balance
// changes once.
func Example() {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, exampleURL())
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	store, err := pgxstore.New(pool, &pgxstore.Options{Schema: "example_charge"})
	if err != nil {
		log.Fatal(err)
	}
	if err := store.Migrate(ctx); err != nil { // once; safe from several processes
		log.Fatal(err)
	}
	defer pool.Exec(ctx, "DROP SCHEMA example_charge CASCADE") //nolint:errcheck // the example cleans up
	if _, err := pool.Exec(ctx, "CREATE TABLE example_charge.account (id text PRIMARY KEY, balance int NOT NULL)"); err != nil {
		log.Fatal(err)
	}
	if _, err := pool.Exec(ctx, "INSERT INTO example_charge.account VALUES ('ada', 100)"); err != nil {
		log.Fatal(err)
	}

	receiver, err := everonce.NewTxReceiver(store, nil)
	if err != nil {
		log.Fatal(err)
	}
	charge := func(order string, amount int) (everonce.Result[int], error) {
		key := everonce.Key{Scope: everonce.ScopeOf("shop", "charge"), ID: order}
		return everonce.Transact(ctx, receiver, key, func(ctx context.Context, tx pgx.Tx) (balance int, err error) {
			err = tx.QueryRow(ctx, "UPDATE example_charge.account SET balance = balance - $1 WHERE id = 'ada' RETURNING balance", amount).Scan(&balance)
			return balance, err
		}, everonce.FingerprintOf(amount))
	}
	for range 3 {
		res, err := charge("order-7", 30)
		fmt.Println(res.Outcome, res.Value, err)
	}
	_, err = charge("order-7", 31) // the same key for another request
	fmt.Println(err != nil)
	// Output:
	// executed 70 <nil>
	// replayed 70 <nil>
	// replayed 70 <nil>
	// true
}

// The same through database/sql, in a transaction that the application begins and commits itself.
func ExampleNewSQL() {
	ctx := context.Background()
	db, err := sql.Open("pgx", exampleURL())
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close() //nolint:errcheck // the example ends
	store, err := pgxstore.NewSQL(db, &pgxstore.Options{Schema: "example_sql"})
	if err != nil {
		log.Fatal(err)
	}
	if err := store.Migrate(ctx); err != nil {
		log.Fatal(err)
	}
	defer db.Exec("DROP SCHEMA example_sql CASCADE") //nolint:errcheck // the example cleans up
	receiver, err := everonce.NewTxReceiver(store, nil)
	if err != nil {
		log.Fatal(err)
	}
	handle := func(message string) (everonce.Outcome, error) {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return 0, err
		}
		defer tx.Rollback() //nolint:errcheck // after the commit it does nothing
		res, err := everonce.DoTx(ctx, tx, receiver, everonce.Key{Scope: "orders", ID: message}, func(ctx context.Context) (string, error) {
			// … tx.ExecContext(ctx, …) …
			return "booked", nil
		})
		if err != nil {
			return res.Outcome, err
		}
		return res.Outcome, tx.Commit()
	}
	for range 2 {
		outcome, err := handle("message-1")
		fmt.Println(outcome, err)
	}
	// Output:
	// executed <nil>
	// replayed <nil>
}

// A unique constraint on the business table itself, beside every record of operations.
func ExampleInsertOnce() {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, exampleURL())
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	if _, err := pool.Exec(ctx, "CREATE SCHEMA example_insert; CREATE TABLE example_insert.payment (order_id text PRIMARY KEY, amount bigint NOT NULL)"); err != nil {
		log.Fatal(err)
	}
	defer pool.Exec(ctx, "DROP SCHEMA example_insert CASCADE") //nolint:errcheck // the example cleans up
	pay := func(order string, amount int64) {
		paid, inserted, err := pgxstore.InsertOnce(ctx, pool, pgxstore.Insert{
			Table: "example_insert.payment", Columns: []string{"order_id", "amount"}, Values: []any{order, amount},
			Key: []string{"order_id"}, Returning: []string{"amount"},
		}, func(r pgxstore.Row) (amount int64, err error) {
			err = r.Scan(&amount)
			return amount, err
		})
		fmt.Println(paid, inserted, err)
	}
	pay("order-7", 30)
	pay("order-7", 31)
	// Output:
	// 30 true <nil>
	// 30 false <nil>
}
