package shop

import (
	"context"
	"database/sql"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// ledgers makes both ledgers: three orders, and what statements and mails say.
func ledgers(t *testing.T, mails string, statements ...string) (*sql.DB, string) {
	t.Helper()
	dir := t.TempDir()
	db, err := OpenBooks(filepath.Join(dir, "payments.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	payments := []Payment{
		{Order: "order-1", Account: "a", Amount: 100}, {Order: "order-2", Account: "a", Amount: 200}, {Order: "order-3", Account: "b", Amount: 300},
	}
	if err := Create(t.Context(), db, payments); err != nil {
		t.Fatal(err)
	}
	for _, s := range statements {
		if _, err := db.ExecContext(t.Context(), s); err != nil {
			t.Fatalf("%s: %v", s, err)
		}
	}
	file := filepath.Join(dir, "mails.jsonl")
	if err := os.WriteFile(file, []byte(mails), 0o600); err != nil {
		t.Fatal(err)
	}
	return db, file
}

// Charges, as the service makes them.
const (
	charge1 = `INSERT INTO ledger (order_id, account, amount) VALUES ('order-1', 'a', 100); UPDATE accounts SET balance = balance - 100 WHERE name = 'a'`
	charge2 = `INSERT INTO ledger (order_id, account, amount) VALUES ('order-2', 'a', 200); UPDATE accounts SET balance = balance - 200 WHERE name = 'a'`
	charge3 = `INSERT INTO ledger (order_id, account, amount) VALUES ('order-3', 'b', 300); UPDATE accounts SET balance = balance - 300 WHERE name = 'b'`

	mail1 = `{"id":"mail-1","order":"order-1"}` + "\n"
	mail2 = `{"id":"mail-2","order":"order-2"}` + "\n"
	mail3 = `{"id":"mail-3","order":"order-3"}` + "\n"
)

func TestCounts(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		statements []string
		mails      string
		want       Count
	}{
		"nothing happened":  {want: Count{Operations: 3, Lost: 3, MailsLost: 3}},
		"each once":         {[]string{charge1, charge2, charge3}, mail1 + mail2 + mail3, Count{Operations: 3, Effects: 3, Mails: 3}},
		"one twice":         {[]string{charge1, charge2, charge3, charge2}, mail1 + mail2 + mail2 + mail3, Count{Operations: 3, Effects: 4, Doubled: 1, Mails: 4, MailsDoubled: 1}},
		"one three times":   {[]string{charge1, charge1, charge1, charge2, charge3}, mail1 + mail2 + mail3, Count{Operations: 3, Effects: 5, Doubled: 1, Mails: 3}},
		"one for the other": {[]string{charge1, charge3, charge3}, mail3 + mail3 + mail3, Count{Operations: 3, Effects: 3, Doubled: 1, Lost: 1, Mails: 3, MailsDoubled: 1, MailsLost: 2}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db, mails := ledgers(t, c.mails, c.statements...)
			got, err := Audit(t.Context(), db, mails)
			if err != nil || got != c.want {
				t.Errorf("%+v, %v; want %+v", got, err, c.want)
			}
		})
	}
}

// TestRefusesFalseBooks: a ledger that does not say what the money says is no evidence.
func TestRefusesFalseBooks(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		statement, mails, want string
	}{
		"money is gone that no charge has taken": {`UPDATE accounts SET balance = balance - 100 WHERE name = 'a'`, "", "the balances of 1 accounts are not what their charges say"},
		"a charge that has taken no money":       {`INSERT INTO ledger (order_id, account, amount) VALUES ('order-1', 'a', 100)`, "", "the balances of 1 accounts"},
		"a charge of no order":                   {`INSERT INTO ledger (order_id, account, amount) VALUES ('order-9', 'a', 0)`, "", "1 charges are of no order"},
		"a mail for no order":                    {charge1, `{"id":"mail-1","order":"order-9"}`, `a mail for "order-9", which is no order`},
		"a gateway's ledger that cannot be read": {charge1, mail1 + `{"id":`, "the gateway's ledger, line 2"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db, mails := ledgers(t, c.mails, c.statement)
			if got, err := Audit(t.Context(), db, mails); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%+v, %v; want %q", got, err, c.want)
			}
		})
	}
}

func TestMissingAudit(t *testing.T) {
	t.Parallel()
	db, mails := ledgers(t, "")
	if err := os.Remove(mails); err != nil {
		t.Fatal(err)
	}
	if got, err := Audit(t.Context(), db, mails); err == nil {
		t.Errorf("%+v of a gateway without a ledger", got)
	}
	empty, err := OpenBooks(filepath.Join(t.TempDir(), "empty.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer empty.Close()
	if got, err := Audit(context.Background(), empty, mails); err == nil {
		t.Errorf("%+v of a service without books", got)
	}
}
