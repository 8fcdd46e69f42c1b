package pgxstore_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/store/memstore"
	"github.com/everonce/everonce/store/pgxstore"
)

// The records are elsewhere, and the work is one statement. A statement that the server refused had no effect: the key
// is free, and the corrected request may use it again. Unclassified, the error would leave it unknown.
func ExampleClassify() {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, exampleURL())
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	if _, err := pool.Exec(ctx, "CREATE SCHEMA example_classify; CREATE TABLE example_classify.payment (amount bigint CHECK (amount > 0))"); err != nil {
		log.Fatal(err)
	}
	defer pool.Exec(ctx, "DROP SCHEMA example_classify CASCADE") //nolint:errcheck // the example cleans up
	receiver, err := everonce.NewReceiver(memstore.New(nil), everonce.Refuse, &everonce.Options{Classify: pgxstore.Classify})
	if err != nil {
		log.Fatal(err)
	}
	for _, amount := range []int64{-30, 30} {
		res, err := everonce.Do(ctx, receiver, everonce.Key{Scope: "payments", ID: "order-7"}, func(ctx context.Context, _ *everonce.Attempt) (string, error) {
			_, err := pool.Exec(ctx, "INSERT INTO example_classify.payment VALUES ($1)", amount)
			return "paid", err
		})
		if refused, ok := errors.AsType[*pgconn.PgError](err); ok {
			fmt.Println(res.Outcome, refused.ConstraintName)
			continue
		}
		fmt.Println(res.Outcome, res.Value, err)
	}
	// Output:
	// failed payment_amount_check
	// executed paid <nil>
}

// The insert rides in the application's own transaction, and commits with what else is in it.
func ExampleInsertOnceSQL() {
	ctx := context.Background()
	db, err := sql.Open("pgx", exampleURL())
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close() //nolint:errcheck // the example ends
	if _, err := db.ExecContext(ctx, "CREATE SCHEMA example_insert_sql; CREATE TABLE example_insert_sql.payment (order_id text PRIMARY KEY, amount bigint NOT NULL)"); err != nil {
		log.Fatal(err)
	}
	defer db.ExecContext(ctx, "DROP SCHEMA example_insert_sql CASCADE") //nolint:errcheck // the example cleans up
	pay := func(order string, amount int64) (paid int64, inserted bool, err error) {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return 0, false, err
		}
		defer tx.Rollback() //nolint:errcheck // after the commit it does nothing
		paid, inserted, err = pgxstore.InsertOnceSQL(ctx, tx, pgxstore.Insert{
			Table: "example_insert_sql.payment", Columns: []string{"order_id", "amount"}, Values: []any{order, amount},
			Key: []string{"order_id"}, Returning: []string{"amount"},
		}, func(r pgxstore.Row) (amount int64, err error) {
			err = r.Scan(&amount)
			return amount, err
		})
		if err != nil {
			return 0, false, err
		}
		return paid, inserted, tx.Commit()
	}
	fmt.Println(pay("order-7", 30))
	fmt.Println(pay("order-7", 31))
	// Output:
	// 30 true <nil>
	// 30 false <nil>
}
