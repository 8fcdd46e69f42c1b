package pgxstore_test

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/internal/sqldb"
	"github.com/everonce/everonce/store/pgxstore"
)

func pgError(severity, code string) error {
	return fmt.Errorf("wrapped: %w", &pgconn.PgError{Severity: severity, SeverityUnlocalized: severity, Code: code})
}

func TestClassify(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		err     error
		notDone bool
	}{
		"a unique violation":              {pgError("ERROR", "23505"), true},
		"a check":                         {pgError("ERROR", "23514"), true},
		"a deadlock":                      {pgError("ERROR", "40P01"), true},
		"a serialization failure":         {pgError("ERROR", "40001"), true},
		"a lock that was not available":   {pgError("ERROR", "55P03"), true},
		"a statement that took too long":  {pgError("ERROR", "57014"), true},
		"a full disk":                     {pgError("ERROR", "53100"), true},
		"an aborted transaction":          {pgError("ERROR", "25P02"), true},
		"statement completion unknown":    {pgError("ERROR", "40003"), false},
		"a proxy's connection failure":    {pgError("ERROR", "08006"), false},
		"a proxy's protocol violation":    {pgError("FATAL", "08P01"), false},
		"told to end":                     {pgError("FATAL", "57P01"), false},
		"a crash of the server":           {pgError("FATAL", "57P02"), false},
		"an idle transaction's end":       {pgError("FATAL", "25P03"), false},
		"a panic of the server":           {pgError("PANIC", "XX000"), false},
		"an error of an older protocol":   {&pgconn.PgError{Severity: "FATAL", Code: "57P01"}, false},
		"a commit that rolled back":       {pgx.ErrTxCommitRollback, true},
		"the end of the connection":       {io.ErrUnexpectedEOF, false},
		"a closed connection":             {pgconn.ErrConnClosed, false},
		"a reset":                         {&net.OpError{Op: "read", Err: errors.New("reset")}, false},
		"a bad connection":                {sqldriver.ErrBadConn, false},
		"a cancelled context":             {context.Canceled, false},
		"a deadline":                      {fmt.Errorf("query: %w", context.DeadlineExceeded), false},
		"an error of the application":     {errors.New("card declined"), false},
		"no rows":                         {pgx.ErrNoRows, false},
		"one that is marked already":      {everonce.NotDone(io.EOF), true},
		"one that is permanent":           {everonce.Permanent("declined", pgError("ERROR", "23505"), nil), false},
		"something marked within a chain": {fmt.Errorf("x: %w", everonce.NotDone(io.EOF)), true},
	} {
		got := pgxstore.Classify(c.err)
		if everonce.IsNotDone(got) != c.notDone {
			t.Errorf("%s: not done is %v, want %v", name, everonce.IsNotDone(got), c.notDone)
		}
		if !errors.Is(got, c.err) {
			t.Errorf("%s: the error is lost: %v", name, got)
		}
	}
	if pgxstore.Classify(nil) != nil {
		t.Error("no error became one")
	}
}

// The class of an error decides what the engine does: which transactions run again, and what an operator sees.
func TestClassesOfErrors(t *testing.T) {
	t.Parallel()
	for class, codes := range map[sqldb.ErrorClass][]string{
		sqldb.ClassUnique:       {"23505"},
		sqldb.ClassRetry:        {"40001", "40P01", "55P03", "53200"},
		sqldb.ClassConstraint:   {"23502", "23503", "23514", "23P01"},
		sqldb.ClassMissingTable: {"42P01", "42703", "3F000"},
		sqldb.ClassFull:         {"53100"},
		sqldb.ClassTooLarge:     {"54000", "54001"},
		sqldb.ClassReadOnly:     {"25006"},
		sqldb.ClassDenied:       {"42501", "28000", "28P01"},
		sqldb.ClassCorrupt:      {"XX001", "XX002"},
		sqldb.ClassUnavailable:  {"08006", "53300", "57P01", "57P02", "57P03", "57P05", "3D000"},
		sqldb.ClassOther:        {"25P02", "25P03", "40003", "42601", "57014", "XX000", "4", ""},
	} {
		for _, code := range codes {
			if got := pgxstore.ClassOf(pgError("ERROR", code)); got != class {
				t.Errorf("%q has class %d, want %d", code, got, class)
			}
		}
	}
	for _, err := range []error{
		io.EOF, io.ErrUnexpectedEOF, net.ErrClosed, syscall.ECONNRESET, syscall.ECONNREFUSED, syscall.EPIPE,
		pgconn.ErrConnClosed, sqldriver.ErrBadConn, sql.ErrConnDone, &net.OpError{Op: "read", Err: errors.New("reset")},
	} {
		if got := pgxstore.ClassOf(fmt.Errorf("wrapped: %w", err)); got != sqldb.ClassUnavailable {
			t.Errorf("%v has class %d, want the class of an unreachable database", err, got)
		}
		if got := pgxstore.ClassOf(fmt.Errorf("%w: %w", context.Canceled, err)); got != sqldb.ClassOther {
			t.Errorf("the end of a context, which looks like %v, has class %d, want no specific class", err, got)
		}
	}
}

// An error of the database proves to a guarded receiver that nothing took hold; one that says nothing
// does not.
func TestClassifyInAReceiver(t *testing.T) {
	t.Parallel()
	both(t, setup{}, testClassifyReceiver[pgx.Tx], testClassifyReceiver[*sql.Tx])
}

func testClassifyReceiver[Tx any](t *testing.T, h *handle[Tx]) {
	r, err := everonce.NewReceiver(h.store, everonce.Refuse, &everonce.Options{Classify: pgxstore.Classify})
	noErr(t, err)
	mustExec(t, "INSERT INTO "+h.schema+".effect VALUES ('taken', 1)")
	insert := func(key string, name string) error {
		_, err := everonce.Do(t.Context(), r, everonce.Key{Scope: "classify", ID: key}, func(ctx context.Context, _ *everonce.Attempt) (int, error) {
			tx, err := h.begin(ctx, sql.LevelDefault)
			if err != nil {
				return 0, err
			}
			if err := h.exec(ctx, tx, "INSERT INTO "+h.schema+".effect VALUES ($1, 1)", name); err != nil {
				_ = h.abort(ctx, tx)
				return 0, err
			}
			if name == "lost" {
				_ = h.commit(ctx, tx)
				return 0, io.ErrUnexpectedEOF
			}
			return 1, h.commit(ctx, tx)
		})
		return err
	}
	if err := insert("one", "taken"); err == nil || errors.Is(err, everonce.ErrOutcomeUnknown) {
		t.Errorf("a violated constraint: %v", err)
	}
	noErr(t, insert("one", "free")) // the key was released
	if err := insert("two", "lost"); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("a lost connection: %v", err)
	}
	if err := insert("two", "lost"); !errors.Is(err, everonce.ErrOutcomeUnknown) {
		t.Errorf("after it: %v", err)
	}
}
