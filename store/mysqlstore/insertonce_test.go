package mysqlstore_test

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/store/mysqlstore"
)

type payment struct {
	id     string
	amount int64
}

func scanPayment(r mysqlstore.Row) (p payment, err error) {
	err = r.Scan(&p.id, &p.amount)
	return p, err
}

func paymentOf(id, order string, amount any) mysqlstore.Insert {
	return mysqlstore.Insert{
		Table: "payment", Columns: []string{"id", "`order`", "amount"}, Values: []any{id, order, amount},
		Key: []string{"`order`"}, Returning: []string{"id", "amount"},
	}
}

func newPayments(t *testing.T, on server, change func(*mysql.Config)) *bank {
	t.Helper()
	b := newBank(t, on, change)
	mustExec(t, b.db, "CREATE TABLE payment (id varchar(20) PRIMARY KEY, `order` varchar(20) NOT NULL UNIQUE, amount tinyint NOT NULL CHECK (amount > 0), receipt varchar(20) UNIQUE) ENGINE = InnoDB")
	return b
}

func TestInsertOnce(t *testing.T) { onEach(t, testInsertOnce) }

func testInsertOnce(t *testing.T, on server) {
	b := newPayments(t, on, nil)
	tx, err := b.db.BeginTx(t.Context(), nil)
	noErr(t, err)
	defer tx.Rollback() //nolint:errcheck // after the commit it does nothing
	violated := uint16(4025)
	if on.mysql {
		violated = 3819
	}
	withReceipt := func(in mysqlstore.Insert, receipt string) mysqlstore.Insert {
		in.Columns, in.Values = append(in.Columns, "receipt"), append(in.Values, receipt)
		return in
	}
	for _, c := range []struct {
		what     string
		in       mysqlstore.Insert
		want     payment
		inserted bool
		number   uint16 // of the error, if one is wanted
	}{
		{what: "a new row", in: withReceipt(paymentOf("p1", "o1", 30), "r1"), want: payment{"p1", 30}, inserted: true},
		{what: "a duplicate of other content", in: paymentOf("p2", "o1", 40), want: payment{"p1", 30}},
		// A true retry repeats the primary key too, which the server names.
		{what: "a true retry", in: paymentOf("p1", "o1", 30), want: payment{"p1", 30}},
		{what: "the primary key of another order", in: paymentOf("p1", "o2", 30), number: 1062},
		{what: "another unique column", in: withReceipt(paymentOf("p3", "o3", 30), "r1"), number: 1062},
		// INSERT IGNORE would store 0 and 127.
		{what: "NULL where there must be a value", in: paymentOf("p4", "o4", nil), number: 1048},
		{what: "a number that does not fit", in: paymentOf("p4", "o4", 9999), number: 1264},
		{what: "a violated CHECK", in: paymentOf("p4", "o4", -1), number: violated},
		{what: "another new row, after those errors", in: paymentOf("p5", "o5", 50), want: payment{"p5", 50}, inserted: true},
	} {
		got, inserted, err := mysqlstore.InsertOnce(t.Context(), tx, c.in, scanPayment)
		if c.number != 0 {
			if answer, ok := errors.AsType[*mysql.MySQLError](err); inserted || !ok || answer.Number != c.number {
				t.Errorf("%s: %v, %v, want error %d", c.what, inserted, err, c.number)
			}
			continue
		}
		if err != nil || inserted != c.inserted || got != c.want {
			t.Errorf("%s: %+v, %v, %v, want %+v, %v", c.what, got, inserted, err, c.want, c.inserted)
		}
	}
	noErr(t, tx.Commit())
	if got, inserted, err := mysqlstore.InsertOnce(t.Context(), b.db, paymentOf("p9", "o5", 1), scanPayment); err != nil || inserted || got.id != "p5" {
		t.Errorf("without a transaction: %+v, %v, %v", got, inserted, err)
	}
	for what, in := range map[string]mysqlstore.Insert{
		"SQL for a table":      {Table: "payment; DROP TABLE payment", Columns: []string{"id"}, Values: []any{"x"}, Key: []string{"id"}, Returning: []string{"id"}},
		"a quote in a name":    {Table: "`a`b`", Columns: []string{"id"}, Values: []any{"x"}, Key: []string{"id"}, Returning: []string{"id"}},
		"a key that is NULL":   {Table: "payment", Columns: []string{"id"}, Values: []any{nil}, Key: []string{"id"}, Returning: []string{"id"}},
		"a key with no column": {Table: "payment", Columns: []string{"id"}, Values: []any{"x"}, Key: []string{"amount"}, Returning: []string{"id"}},
	} {
		if _, _, err := mysqlstore.InsertOnce(t.Context(), b.db, in, scanPayment); !errors.Is(err, everonce.ErrInvalidArgument) {
			t.Errorf("%s: %v, want ErrInvalidArgument", what, err)
		}
	}
}

// At repeatable read a snapshot does not see the row that was in the way: it is read all the same, unless the server
// refuses it, as MariaDB does by default from 11.6.2 on.
func TestInsertOnceFindsARowBehindItsSnapshot(t *testing.T) {
	onEach(t, testInsertOnceFindsARowBehindItsSnapshot)
}

func testInsertOnceFindsARowBehindItsSnapshot(t *testing.T, on server) {
	b := newPayments(t, on, func(c *mysql.Config) {
		if !on.mysql {
			c.Params = map[string]string{"innodb_snapshot_isolation": "0"}
		}
	})
	tx, err := b.db.BeginTx(t.Context(), nil)
	noErr(t, err)
	defer tx.Rollback() //nolint:errcheck // it has only read
	var n int
	noErr(t, tx.QueryRowContext(t.Context(), "SELECT count(*) FROM payment").Scan(&n))
	_, _, err = mysqlstore.InsertOnce(t.Context(), b.db, paymentOf("p1", "o1", 30), scanPayment)
	noErr(t, err)
	if got, inserted, err := mysqlstore.InsertOnce(t.Context(), tx, paymentOf("p2", "o1", 40), scanPayment); err != nil || inserted || got.id != "p1" {
		t.Errorf("%+v, %v, %v; want the row of p1", got, inserted, err)
	}
}

func TestInsertOnceAtTheSameTime(t *testing.T) { onEach(t, testInsertOnceAtTheSameTime) }

func testInsertOnceAtTheSameTime(t *testing.T, on server) {
	b := newPayments(t, on, nil)
	var inserted atomic.Int32
	var wg sync.WaitGroup
	for i := range 16 {
		wg.Go(func() {
			got, first, err := mysqlstore.InsertOnce(t.Context(), b.db, paymentOf(fmt.Sprint("p", i), "o1", i+1), scanPayment)
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

// A transaction that the caller began by its text goes on: it commits nothing, and begins none.
func TestInsertOnceLeavesATransactionOfTheCallerOpen(t *testing.T) {
	onEach(t, testInsertOnceLeavesATransactionOfTheCallerOpen)
}

func testInsertOnceLeavesATransactionOfTheCallerOpen(t *testing.T, on server) {
	b := newPayments(t, on, nil)
	ctx := t.Context()
	session, err := b.db.Conn(ctx)
	noErr(t, err)
	defer session.Close() //nolint:errcheck // it goes back to the pool
	_, err = session.ExecContext(ctx, "BEGIN")
	noErr(t, err)
	_, first, err := mysqlstore.InsertOnce(ctx, session, paymentOf("p1", "o1", 30), scanPayment)
	if err != nil || !first {
		t.Fatalf("%v, %v", first, err)
	}
	_, err = session.ExecContext(ctx, "ROLLBACK")
	noErr(t, err)
	if got, first, err := mysqlstore.InsertOnce(ctx, session, paymentOf("p2", "o1", 40), scanPayment); err != nil || !first || got.id != "p2" {
		t.Errorf("after the rollback: %+v, %v, %v; want a new row", got, first, err)
	}
}

// A key of any type is written unchanged.
func TestInsertOnceOfKeys(t *testing.T) { onEach(t, testInsertOnceOfKeys) }

func testInsertOnceOfKeys(t *testing.T, on server) {
	for _, interpolate := range []bool{false, true} {
		b := newBank(t, on, func(c *mysql.Config) { c.InterpolateParams, c.ParseTime = interpolate, true })
		for i, c := range []struct {
			column string
			key    any
		}{
			{"bigint unsigned", uint64(1<<64 - 1)},
			{"bigint", int64(-1 << 63)},
			{"double", 0.1},
			{"decimal(30, 10)", "12345678901234567890.0123456789"},
			{"varbinary(100)", []byte("\x00\xff'\\\"a\x80 ")},
			{"varchar(700) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin", strings.Repeat("é😀", 350)},
			{"datetime(6)", time.Date(2026, 1, 2, 3, 4, 5, 6000, time.UTC)},
			{"boolean", true},
		} {
			table := fmt.Sprint("key", i)
			mustExec(t, b.db, "CREATE TABLE "+table+" (id "+c.column+" NOT NULL UNIQUE) ENGINE = InnoDB")
			for _, want := range []bool{true, false} {
				got, inserted, err := mysqlstore.InsertOnce(t.Context(), b.db, mysqlstore.Insert{
					Table: table, Columns: []string{"id"}, Values: []any{c.key}, Key: []string{"id"}, Returning: []string{"id"},
				}, func(r mysqlstore.Row) (any, error) {
					got := reflect.New(reflect.TypeOf(c.key))
					err := r.Scan(got.Interface())
					return got.Elem().Interface(), err
				})
				if err != nil || inserted != want || !reflect.DeepEqual(got, c.key) {
					t.Errorf("%s: %v, %v, %v; want %v", c.column, got, inserted, err, want)
				}
			}
		}
	}
}
