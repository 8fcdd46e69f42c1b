package sqlstore

import (
	"context"
	sqldriver "database/sql/driver"
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/everonce/everonce/internal/sqldb"

	"github.com/everonce/everonce/driver"
)

// Insert is a row of an application's table that a unique constraint allows once. The names are raw SQL: letters,
// digits and "_", dots in Table, or in the database's quotes.
type Insert struct {
	Table   string
	Columns []string
	Values  []any // of the Columns, in their order
	// Key names the columns of the unique constraint, all of which are in Columns: they identify the row. None of the
	// values may be NULL, because NULLs are not equal for a unique constraint. The database refuses columns that no
	// unique constraint or index covers.
	Key []string
	// Where is the predicate of the unique index, if it is a partial one: "deleted_at IS NULL". It is raw SQL.
	Where string
	// Returning are the columns to read back, of the new row or of the existing one.
	Returning []string
}

// ErrInvisible: the row with this key cannot be read. Either this transaction's snapshot does not see it (run the
// whole transaction again), or it is repeatedly inserted and deleted.
var ErrInvisible = errors.New("everonce: the row with this key cannot be read (run the whole transaction again)")

// InsertDialect holds the differences between databases for InsertOnce.
type InsertDialect struct {
	Classify func(error) sqldb.ErrorInfo
	// MySQL says that the texts are MySQL's and MariaDB's: names in backquotes, "?" for an argument, and an INSERT that
	// returns nothing.
	MySQL bool
	// Durable is [sqldb.Dialect.Durable] if the row's commit is to wait for the disk, whatever the session says.
	Durable string
}

// insertTries bounds how often a row that was in the way and is gone is inserted again.
const insertTries = 3

// InsertOnce implements the functions of that name in the SQL modules, through c. It inserts the row and returns it,
// or returns the existing row with the same key, and reports which. It returns every other error, including the
// violation of another constraint, unless there is a row with this key: a true retry repeats the primary key too, and
// the database may report that first.
//
// inTx reports that c is in a transaction. After an error, including one of scan, that transaction is usable and
// unchanged. Without a transaction the row may stay if scan fails.
func InsertOnce[T any](ctx context.Context, c sqldb.Conn, d InsertDialect, inTx bool, in Insert, scan func(sqldb.Row) (T, error)) (row T, inserted bool, err error) {
	insert, read, err := in.calls(&d)
	if err != nil {
		return row, false, err
	}
	var found T
	rows := 0
	each := func(r sqldb.Row) (err error) {
		if rows++; rows > 1 {
			return fmt.Errorf("%w: several rows have this key", driver.ErrInvalidArgument)
		}
		found, err = scan(r)
		return err
	}
	insert.Each, read.Each = each, each
	once := func(undo func() error) (inserted bool, err error) {
		for range insertTries {
			rows = 0
			failure := c.Send(ctx, insert)
			if failure == nil && d.MySQL { // it cannot return the row
				failure = c.Send(ctx, read)
			}
			if failure == nil && rows > 0 {
				return true, nil
			}
			if failure != nil && (d.Classify(failure).Class != sqldb.ClassUnique || undo() != nil) {
				return false, failure
			}
			rows = 0
			switch err := c.Send(ctx, read); {
			case err != nil:
				return false, fmt.Errorf("read the row: %w", err)
			case rows > 0:
				return false, nil
			case failure != nil: // of another constraint, and not by this row
				return false, failure
			}
		}
		return false, ErrInvisible
	}
	if inTx {
		inserted, err = behindSavepoint(ctx, c, once)
	} else {
		inserted, err = once(func() error { return nil })
	}
	if err != nil {
		return row, false, fmt.Errorf("insert into %s: %w", in.Table, err)
	}
	return found, inserted, nil
}

var (
	savepointInsert  = &sqldb.Statement{Name: "savepoint", Text: "SAVEPOINT everonce_insert"}
	rollbackToInsert = &sqldb.Statement{Name: "savepoint", Text: "ROLLBACK TO SAVEPOINT everonce_insert"}
	releaseInsert    = &sqldb.Statement{Name: "savepoint", Text: "RELEASE SAVEPOINT everonce_insert"}
)

// undoTimeout bounds the way back to a savepoint.
const undoTimeout = 10 * time.Second

// behindSavepoint runs op behind a savepoint, which undo goes back to. The statements are sent one by one: of two that
// are sent together the second may be done although the first did not have the expected result.
func behindSavepoint(ctx context.Context, c sqldb.Conn, op func(undo func() error) (bool, error)) (inserted bool, err error) {
	if err := c.Send(ctx, &sqldb.Call{Statement: savepointInsert}); err != nil {
		return false, err
	}
	past := func(st *sqldb.Statement) error { // the end of the caller's context
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTimeout)
		defer cancel()
		return c.Send(ctx, &sqldb.Call{Statement: st})
	}
	undo := func() error { return past(rollbackToInsert) }
	inserted, err = op(undo)
	var lost error
	if err != nil {
		lost = undo()
	}
	if lost == nil {
		lost = past(releaseInsert)
	}
	if lost != nil {
		return false, fmt.Errorf("the transaction is lost: %w", errors.Join(err, lost))
	}
	return inserted, err
}

var (
	columnName = regexp.MustCompile(`^([A-Za-z_][A-Za-z0-9_]*|"[^"\x00]+")$`)
	tableName  = regexp.MustCompile(`^([A-Za-z_][A-Za-z0-9_]*|"[^"\x00]+")(\.([A-Za-z_][A-Za-z0-9_]*|"[^"\x00]+"))*$`)
	backquotes = strings.NewReplacer("`", `"`, `"`, "`")
)

// isName reports whether a name matches one of these patterns.
func (d *InsertDialect) isName(pattern *regexp.Regexp, name string) bool {
	if d.MySQL {
		name = backquotes.Replace(name)
	}
	return pattern.MatchString(name)
}

// place is the n-th argument.
func (d *InsertDialect) place(n int) string {
	if d.MySQL {
		return "?"
	}
	return "$" + strconv.Itoa(n)
}

// calls are the insert, and the read by key.
func (in *Insert) calls(d *InsertDialect) (insert, read *sqldb.Call, err error) {
	bad := func(format string, args ...any) (*sqldb.Call, *sqldb.Call, error) {
		return nil, nil, fmt.Errorf("%w: Insert: %s", driver.ErrInvalidArgument, fmt.Sprintf(format, args...))
	}
	if !d.isName(tableName, in.Table) {
		return bad("%q is no name of a table", in.Table)
	}
	if len(in.Columns) == 0 || len(in.Values) != len(in.Columns) || len(in.Key) == 0 || len(in.Returning) == 0 {
		return bad("%d columns, %d values, %d columns of the key, %d to return: none may be missing, and every column needs a value",
			len(in.Columns), len(in.Values), len(in.Key), len(in.Returning))
	}
	at := make(map[string]int, len(in.Columns))
	places := make([]string, len(in.Columns))
	for i, name := range in.Columns {
		if !d.isName(columnName, name) {
			return bad("%q is no name of a column", name)
		}
		at[name] = i
		places[i] = d.place(i + 1)
	}
	for _, name := range in.Returning {
		if !d.isName(columnName, name) {
			return bad("%q is no name of a column", name)
		}
	}
	same := make([]string, len(in.Key))
	key := make([]any, len(in.Key))
	for i, name := range in.Key {
		n, ok := at[name]
		if !ok {
			return bad("the column %q of the key has no value", name)
		}
		if isNull(in.Values[n]) {
			return bad("the column %q of the key is NULL, which is the same as no other: every insert of it would be a first one", name)
		}
		same[i], key[i] = name+" = "+d.place(i+1), in.Values[n]
	}
	where, only := "", ""
	if in.Where != "" {
		where, only = " WHERE "+in.Where, " AND ("+in.Where+")"
	}
	returning := strings.Join(in.Returning, ", ")
	if d.MySQL { // the key is never NULL, and so its value is one that a condition can give
		n := at[in.Key[0]]
		places[n] = sqldb.GuardedValue(places[n])
	}
	written := returning
	if d.Durable != "" {
		written = sqldb.Durably(d.Durable, in.Returning[0]) + strings.TrimPrefix(returning, in.Returning[0])
	}
	values := "INSERT INTO " + in.Table + " (" + strings.Join(in.Columns, ", ") + ") VALUES (" + strings.Join(places, ", ") + ")"
	if d.MySQL {
		insert = &sqldb.Call{Args: in.Values, Statement: &sqldb.Statement{Name: "insert_once", Text: values}}
		only += " LOCK IN SHARE MODE" // the latest row: a snapshot that is older does not see what was in the way
	} else {
		insert = &sqldb.Call{Args: in.Values, Statement: &sqldb.Statement{
			Name: "insert_once", Rows: true, Foreign: true,
			Text: values + " ON CONFLICT (" + strings.Join(in.Key, ", ") + ")" + where + " DO NOTHING RETURNING " + written,
		}}
	}
	read = &sqldb.Call{Args: key, Statement: &sqldb.Statement{
		Name: "insert_once_read", Rows: true, Foreign: true,
		Text: "SELECT " + returning + " FROM " + in.Table + " WHERE " + strings.Join(same, " AND ") + only,
	}}
	return insert, read, nil
}

// isNull reports whether a value is NULL to the database.
func isNull(v any) bool {
	switch r := reflect.ValueOf(v); r.Kind() {
	case reflect.Invalid:
		return true
	case reflect.Pointer, reflect.Slice, reflect.Map:
		if r.IsNil() {
			return true
		}
	}
	valuer, ok := v.(sqldriver.Valuer)
	if !ok {
		return false
	}
	got, err := valuer.Value()
	return got == nil && err == nil // the error is returned when the value is sent
}
