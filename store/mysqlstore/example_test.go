package mysqlstore_test

import (
	"context"
	"database/sql"
	"fmt"
	"log"
	"os"

	"github.com/go-sql-driver/mysql"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/store/mysqlstore"
)

// A store is opened from a URL, and makes its tables.
func ExampleParseURL() {
	run := func(ctx context.Context) error {
		config, err := mysqlstore.ParseURL("mysql://user:password@host:3306/shop?innodb_lock_wait_timeout=1")
		if err != nil {
			return err
		}
		connector, err := mysql.NewConnector(config)
		if err != nil {
			return err
		}
		db := sql.OpenDB(connector)
		store, err := mysqlstore.New(db, nil)
		if err != nil {
			return err
		}
		if err := store.Migrate(ctx); err != nil {
			return err
		}
		return db.Close()
	}
	if err := run(context.Background()); err != nil {
		log.Fatal(err)
	}
}

// The effect and the record of it commit together, in a transaction that the application begins.
func ExampleNew() {
	ctx := context.Background()
	config, err := mysqlstore.ParseURL(os.Getenv("EVERONCE_TEST_MARIADB_URL"))
	if err != nil {
		log.Fatal(err)
	}
	connector, err := mysql.NewConnector(config)
	if err != nil {
		log.Fatal(err)
	}
	db := sql.OpenDB(connector)
	defer db.Close() //nolint:errcheck // the example ends
	for _, text := range []string{
		"CREATE DATABASE example_new", "CREATE TABLE example_new.account (name varchar(20) PRIMARY KEY, balance int NOT NULL)",
		"INSERT INTO example_new.account VALUES ('ann', 100)",
	} {
		if _, err := db.ExecContext(ctx, text); err != nil {
			log.Fatal(err)
		}
	}
	defer db.ExecContext(ctx, "DROP DATABASE example_new") //nolint:errcheck // the example cleans up

	store, err := mysqlstore.New(db, &mysqlstore.Options{Database: "example_new"})
	if err != nil {
		log.Fatal(err)
	}
	if err := store.Migrate(ctx); err != nil {
		log.Fatal(err)
	}
	receiver, err := everonce.NewTxReceiver(store, nil)
	if err != nil {
		log.Fatal(err)
	}
	charge := func(order string) (everonce.Outcome, error) {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return 0, err
		}
		defer tx.Rollback() //nolint:errcheck // after the commit it does nothing
		res, err := everonce.DoTx(ctx, tx, receiver, everonce.Key{Scope: "charges", ID: order}, func(ctx context.Context) (int, error) {
			_, err := tx.ExecContext(ctx, "UPDATE example_new.account SET balance = balance - 30 WHERE name = 'ann'")
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
	if err := db.QueryRowContext(ctx, "SELECT balance FROM example_new.account").Scan(&balance); err != nil {
		log.Print(err)
	}
	fmt.Println("balance", balance)
	// Output:
	// executed <nil>
	// replayed <nil>
	// balance 70
}
