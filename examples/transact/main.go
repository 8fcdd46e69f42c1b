// Command transact moves money in a database: the booking and the record of it commit together.
package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"path/filepath"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/store/sqlitestore"
)

// Booking is an operation in the database.
type Booking struct {
	ID      string
	Account string
	Cents   int64
}

// book takes the amount off the account, once, and returns the balance after it. The same booking sent
// again gets the same balance, whatever was booked since.
func book(ctx context.Context, r *everonce.TxReceiver[*sql.Tx], b Booking) (everonce.Result[int64], error) {
	key := everonce.Key{Scope: everonce.ScopeOf("bank", "book"), ID: b.ID}
	return everonce.Transact(ctx, r, key, func(ctx context.Context, tx *sql.Tx) (balance int64, err error) {
		err = tx.QueryRowContext(ctx,
			`UPDATE account SET cents = cents - ? WHERE id = ? AND cents >= ? RETURNING cents`,
			b.Cents, b.Account, b.Cents).Scan(&balance)
		if errors.Is(err, sql.ErrNoRows) {
			return 0, everonce.Permanent("no_funds", errors.New("the balance is too low"), nil)
		}
		return balance, err
	}, everonce.FingerprintOf(b.Account, b.Cents))
}

func main() {
	dir, err := os.MkdirTemp("", "everonce-transact-")
	if err != nil {
		log.Fatal(err)
	}
	err = run(context.Background(), os.Stdout, filepath.Join(dir, "bank.db"))
	if err = errors.Join(err, os.RemoveAll(dir)); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, out io.Writer, file string) (err error) {
	store, err := sqlitestore.Open(ctx, file, nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	receiver, err := everonce.NewTxReceiver(store, &everonce.Options{Lifetime: everonce.ForFinance()})
	if err != nil {
		return err
	}
	for _, text := range []string{
		`CREATE TABLE account (id TEXT PRIMARY KEY, cents INTEGER NOT NULL)`,
		`INSERT INTO account VALUES ('alice', 5000)`,
	} {
		if _, err := store.DB().ExecContext(ctx, text); err != nil {
			return err
		}
	}
	for _, b := range []Booking{
		{"order-1", "alice", 1200},
		{"order-1", "alice", 1200},
		{"order-2", "alice", 800},
		{"order-1", "alice", 1200},
		{"order-3", "alice", 4000},
		{"order-3", "alice", 4000},
		{"order-1", "alice", 1300},
	} {
		res, err := book(ctx, receiver, b)
		switch failure, rejected := errors.AsType[*everonce.PermanentError](err); {
		case rejected:
			fmt.Fprintf(out, "%s %d: %v: %s\n", b.ID, b.Cents, res.Outcome, failure.Code)
		case errors.Is(err, everonce.ErrMismatch):
			fmt.Fprintf(out, "%s %d: %v\n", b.ID, b.Cents, res.Outcome)
		case err != nil:
			return err
		default:
			fmt.Fprintf(out, "%s %d: %v, balance %d\n", b.ID, b.Cents, res.Outcome, res.Value)
		}
	}
	return nil
}
