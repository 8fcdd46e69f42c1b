package sqlitestore_test

import (
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/internal/sqldb"
	"github.com/everonce/everonce/store/sqlitestore"
)

type payment struct {
	id     string
	amount int64
	note   sql.NullString
}

func scanPayment(r sqlitestore.Row) (p payment, err error) {
	err = r.Scan(&p.id, &p.amount, &p.note)
	return p, err
}

func paymentOf(id, order string, amount int) sqlitestore.Insert {
	return sqlitestore.Insert{
		Table: "payment", Columns: []string{"id", "order_id", "amount"}, Values: []any{id, order, amount},
		Key: []string{"order_id"}, Returning: []string{"id", "amount", "note"},
	}
}

func newPayments(t testing.TB) *sqlitestore.Store {
	t.Helper()
	s := open(t, filepath.Join(t.TempDir(), "payments.db"), nil)
	if _, err := s.DB().Exec(`CREATE TABLE payment (
		id TEXT PRIMARY KEY, order_id TEXT NOT NULL, amount INTEGER NOT NULL CHECK (amount > 0), note TEXT,
		receipt TEXT UNIQUE, voided INTEGER NOT NULL DEFAULT 0, UNIQUE (order_id))`); err != nil {
		t.Fatal(err)
	}
	return s
}

func TestInsertOnce(t *testing.T) {
	s := newPayments(t)
	ctx := t.Context()
	insert := func(q sqlitestore.Querier, in sqlitestore.Insert) (payment, bool, error) {
		return sqlitestore.InsertOnce(ctx, q, in, scanPayment)
	}
	tx, err := s.DB().BeginTx(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback() //nolint:errcheck // committed below
	withReceipt := func(in sqlitestore.Insert, receipt string) sqlitestore.Insert {
		in.Columns, in.Values = append(in.Columns, "receipt"), append(in.Values, receipt)
		return in
	}
	for _, c := range []struct {
		what     string
		in       sqlitestore.Insert
		want     payment
		inserted bool
		class    sqldb.ErrorClass // of the error, if one is wanted
	}{
		{what: "a new row", in: withReceipt(paymentOf("p1", "o1", 30), "r1"), want: payment{id: "p1", amount: 30}, inserted: true},
		{what: "a duplicate of other content", in: paymentOf("p2", "o1", 40), want: payment{id: "p1", amount: 30}},
		// A true retry repeats the primary key too, which SQLite names first.
		{what: "a true retry", in: paymentOf("p1", "o1", 30), want: payment{id: "p1", amount: 30}},
		{what: "the primary key of another order", in: paymentOf("p1", "o2", 30), class: sqldb.ClassUnique},
		{what: "another unique column", in: withReceipt(paymentOf("p3", "o3", 30), "r1"), class: sqldb.ClassUnique},
		{what: "a violated CHECK", in: paymentOf("p4", "o4", -1), class: sqldb.ClassConstraint},
		{what: "another new row, after those errors", in: paymentOf("p5", "o5", 50), want: payment{id: "p5", amount: 50}, inserted: true},
	} {
		got, inserted, err := insert(tx, c.in)
		if c.class != 0 {
			if inserted || sqlitestore.ClassOf(err) != c.class {
				t.Errorf("%s: %v, %v, want an error of class %d", c.what, inserted, err, c.class)
			}
			continue
		}
		if err != nil || inserted != c.inserted || got != c.want {
			t.Errorf("%s: %+v, %v, %v, want %+v, %v", c.what, got, inserted, err, c.want, c.inserted)
		}
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	if got, inserted, err := insert(s.DB(), paymentOf("p9", "o5", 1)); err != nil || inserted || got.id != "p5" {
		t.Errorf("without a transaction: %+v, %v, %v", got, inserted, err)
	}
}

func TestInsertOnceByAPartialIndex(t *testing.T) {
	s := newPayments(t)
	if _, err := s.DB().Exec(`CREATE TABLE seat (no INTEGER, guest TEXT, released INTEGER NOT NULL DEFAULT 0);
		CREATE UNIQUE INDEX taken ON seat (no) WHERE released = 0`); err != nil {
		t.Fatal(err)
	}
	take := func(guest string) (string, bool) {
		got, inserted, err := sqlitestore.InsertOnce(t.Context(), s.DB(), sqlitestore.Insert{
			Table: "seat", Columns: []string{"no", "guest"}, Values: []any{1, guest}, Key: []string{"no"}, Where: "released = 0", Returning: []string{"guest"},
		}, func(r sqlitestore.Row) (guest string, err error) { return guest, r.Scan(&guest) })
		if err != nil {
			t.Fatal(err)
		}
		return got, inserted
	}
	if got, inserted := take("ann"); got != "ann" || !inserted {
		t.Errorf("%s, %v", got, inserted)
	}
	if got, inserted := take("bob"); got != "ann" || inserted {
		t.Errorf("%s, %v", got, inserted)
	}
	if _, err := s.DB().Exec("UPDATE seat SET released = 1"); err != nil {
		t.Fatal(err)
	}
	if got, inserted := take("bob"); got != "bob" || !inserted {
		t.Errorf("%s, %v", got, inserted)
	}
}

func TestInsertOnceAtTheSameTime(t *testing.T) {
	s := newPayments(t)
	var inserted atomic.Int32
	var wg sync.WaitGroup
	for i := range 16 {
		wg.Go(func() {
			got, first, err := sqlitestore.InsertOnce(t.Context(), s.DB(), paymentOf(fmt.Sprint("p", i), "o1", i+1), scanPayment)
			if err != nil || got.id == "" {
				t.Errorf("%+v, %v", got, err)
			}
			if first {
				inserted.Add(1)
			}
		})
	}
	wg.Wait()
	if inserted.Load() != 1 {
		t.Errorf("%d inserted it", inserted.Load())
	}
}

func TestInsertOnceRefuses(t *testing.T) {
	s := newPayments(t)
	good := paymentOf("p1", "o1", 1)
	for what, change := range map[string]func(in *sqlitestore.Insert){
		"no key":                 func(in *sqlitestore.Insert) { in.Key = nil },
		"nothing to return":      func(in *sqlitestore.Insert) { in.Returning = nil },
		"a value too few":        func(in *sqlitestore.Insert) { in.Values = in.Values[1:] },
		"a key without a value":  func(in *sqlitestore.Insert) { in.Key = []string{"receipt"} },
		"SQL for a table":        func(in *sqlitestore.Insert) { in.Table = "payment; DROP TABLE payment" },
		"SQL for a column":       func(in *sqlitestore.Insert) { in.Columns = []string{"id", "order_id", "amount) --"} },
		"SQL for a returned one": func(in *sqlitestore.Insert) { in.Returning = []string{"1 FROM payment"} },
		"a quote inside a name":  func(in *sqlitestore.Insert) { in.Table = `"a"b"` },
	} {
		in := good
		change(&in)
		if _, _, err := sqlitestore.InsertOnce(t.Context(), s.DB(), in, scanPayment); !errors.Is(err, driver.ErrInvalidArgument) {
			t.Errorf("%s: %v, want ErrInvalidArgument", what, err)
		}
	}
	in := good
	in.Key = []string{"amount"} // which no unique constraint covers: it could not say which row
	if _, _, err := sqlitestore.InsertOnce(t.Context(), s.DB(), in, scanPayment); err == nil || !strings.Contains(err.Error(), "ON CONFLICT") {
		t.Errorf("a key that is not unique: %v", err)
	}
	in = good
	in.Table = "nowhere"
	if _, _, err := sqlitestore.InsertOnce(t.Context(), s.DB(), in, scanPayment); sqlitestore.ClassOf(err) != sqldb.ClassMissingTable {
		t.Errorf("a missing table: %v", err)
	}
}

// An error of scan takes back the insert, and leaves the transaction unchanged.
func TestInsertOnceWhoseScanFails(t *testing.T) {
	s := newPayments(t)
	tx, err := s.DB().BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback() //nolint:errcheck // committed below
	if _, err := tx.Exec("INSERT INTO payment (id, order_id, amount) VALUES ('p1', 'there', 1)"); err != nil {
		t.Fatal(err)
	}
	no := errors.New("no")
	for _, order := range []string{"new", "there"} {
		got, inserted, err := sqlitestore.InsertOnce(t.Context(), tx, paymentOf("p2", order, 30), func(sqlitestore.Row) (payment, error) { return payment{id: "x"}, no })
		if !errors.Is(err, no) || inserted || got.id != "" {
			t.Errorf("%s: %+v, %v, %v; want the error of scan", order, got, inserted, err)
		}
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	if got, inserted, err := sqlitestore.InsertOnce(t.Context(), s.DB(), paymentOf("p2", "new", 30), scanPayment); err != nil || !inserted || got.id != "p2" {
		t.Errorf("afterwards: %+v, %v, %v; want it inserted now", got, inserted, err)
	}
}

// A row that is neither inserted nor found, because a trigger of the application has left it out for example, is not
// reported as an existing row.
func TestInsertOnceOfARowThatIsLeftOut(t *testing.T) {
	s := newPayments(t)
	if _, err := s.DB().Exec("CREATE TRIGGER leave_out BEFORE INSERT ON payment BEGIN SELECT RAISE(IGNORE); END"); err != nil {
		t.Fatal(err)
	}
	if _, inserted, err := sqlitestore.InsertOnce(t.Context(), s.DB(), paymentOf("p1", "o1", 30), scanPayment); !errors.Is(err, sqlitestore.ErrInvisible) || inserted {
		t.Errorf("%v, %v, want ErrInvisible", inserted, err)
	}
}

// The application's rows convert as database/sql converts them, also after a repetition.
func TestInsertOnceConvertsAsDatabaseSQL(t *testing.T) {
	t.Parallel()
	s := open(t, filepath.Join(t.TempDir(), "rates.db"), nil)
	_, err := s.DB().Exec("CREATE TABLE rate (id TEXT PRIMARY KEY, rate REAL, made DATETIME, note TEXT)")
	if err != nil {
		t.Fatal(err)
	}
	in := sqlitestore.Insert{
		Table: "rate", Columns: []string{"id", "rate", "made"}, Values: []any{"r", 1.25, "2026-01-02T03:04:05Z"}, Key: []string{"id"},
		Returning: []string{"rate", "rate", "made", "made", "note"},
	}
	for _, want := range []bool{true, false} {
		got, inserted, err := sqlitestore.InsertOnce(t.Context(), s.DB(), in, func(r sqlitestore.Row) (string, error) {
			var rate, made, note string
			var rateBytes, madeBytes []byte
			err := r.Scan(&rate, &rateBytes, &made, &madeBytes, &note)
			return strings.Join([]string{rate, string(rateBytes), made, string(madeBytes), note}, " "), err
		})
		if err != nil {
			t.Fatal(err)
		}
		if read := "1.25 1.25 2026-01-02T03:04:05Z 2026-01-02T03:04:05Z "; got != read || inserted != want {
			t.Errorf("got %q, %v, want %q, %v", got, inserted, read, want)
		}
	}
}
