package mysqlstore_test

import (
	"context"
	"database/sql"
	"testing"

	"github.com/go-sql-driver/mysql"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/store/mysqlstore"
)

// bank is a store, and accounts beside it: two, of 100 each.
type bank struct {
	*mysqlstore.Store
	t    *testing.T
	on   server
	db   *sql.DB
	name string // of the database
	tr   *everonce.TxReceiver[*sql.Tx]
}

func newBank(t *testing.T, on server, change func(*mysql.Config)) *bank {
	t.Helper()
	b := &bank{t: t, on: on}
	b.name = newDatabase(t, on.open(t, nil))
	b.db = on.open(t, func(c *mysql.Config) {
		c.DBName = b.name
		if change != nil {
			change(c)
		}
	})
	var err error
	b.Store, err = mysqlstore.New(b.db, nil)
	noErr(t, err)
	noErr(t, b.Migrate(t.Context()))
	mustExec(t, b.db, "CREATE TABLE account (id int PRIMARY KEY, balance int NOT NULL) ENGINE = InnoDB")
	mustExec(t, b.db, "INSERT INTO account VALUES (1, 100), (2, 100)")
	b.tr, err = everonce.NewTxReceiver(b.Store, nil)
	noErr(t, err)
	return b
}

func (b *bank) balance(account, want int) {
	b.t.Helper()
	var n int
	if err := b.db.QueryRowContext(b.t.Context(), "SELECT balance FROM account WHERE id = ?", account).Scan(&n); err != nil || n != want {
		b.t.Errorf("the balance of account %d is %d, %v; want %d", account, n, err, want)
	}
}

// records returns how many records there are.
func (b *bank) records() (n int) {
	b.t.Helper()
	noErr(b.t, b.db.QueryRowContext(b.t.Context(), "SELECT count(*) FROM everonce_record WHERE state = 4").Scan(&n))
	return n
}

func charge(ctx context.Context, tx *sql.Tx) error {
	_, err := tx.ExecContext(ctx, "UPDATE account SET balance = balance - 30 WHERE id = 1")
	return err
}

func order(id string) everonce.Key { return everonce.Key{Scope: "orders", ID: id} }
