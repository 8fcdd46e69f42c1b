package e2e

import (
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/httponce"
	"github.com/everonce/everonce/internal/testing/testserver"
	"github.com/everonce/everonce/store/pgxstore"
)

// TestHandleTx runs the transactional handler on real databases: on SQLite, and on PostgreSQL through pgx and
// through database/sql.
func TestHandleTx(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	t.Run("sqlite", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "service.db")
		a, err := openSQLite(ctx, path)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(a.close)
		db, err := sql.Open("sqlite", "file:"+path+"?mode=ro")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { db.Close() })
		handlesTx(t, a, db)
	})
	t.Run("pgx", func(t *testing.T) {
		url, schema := newSchema(t)
		a, err := openPostgres(ctx, url, schema)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(a.close)
		handlesTx(t, a, openSQL(t, url, schema))
	})
	t.Run("pgx through database/sql", func(t *testing.T) {
		url, schema := newSchema(t)
		db := openSQL(t, url, schema)
		store, err := pgxstore.NewSQL(db, &pgxstore.Options{Schema: schema})
		if err != nil {
			t.Fatal(err)
		}
		if err := store.Migrate(ctx); err != nil {
			t.Fatal(err)
		}
		handlesTx(t, &app[*sql.Tx]{store: store, exec: func(ctx context.Context, tx *sql.Tx, query string, args ...any) error {
			_, err := tx.ExecContext(ctx, query, args...)
			return err
		}}, db)
	})
}

// newSchema makes a schema of one test's own in PostgreSQL.
func newSchema(t *testing.T) (url, schema string) {
	t.Helper()
	url = testserver.URL(t, "postgres")
	b := make([]byte, 6)
	if _, err := rand.Read(b); err != nil {
		t.Fatal(err)
	}
	schema = "e2e_" + hex.EncodeToString(b)
	run := func(text string) {
		conn, err := pgx.Connect(context.Background(), url)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close(context.Background())
		if _, err := conn.Exec(context.Background(), text); err != nil {
			t.Error(err)
		}
	}
	run(`CREATE SCHEMA ` + schema + `; SET search_path = ` + schema + `;` + appSchema)
	t.Cleanup(func() { run(`DROP SCHEMA ` + schema + ` CASCADE`) })
	return url, schema
}

func openSQL(t *testing.T, url, schema string) *sql.DB {
	t.Helper()
	cfg, err := pgx.ParseConfig(url)
	if err != nil {
		t.Fatal("the PostgreSQL URL does not parse")
	}
	cfg.RuntimeParams["search_path"] = schema
	db := stdlib.OpenDB(*cfg)
	t.Cleanup(func() { db.Close() })
	return db
}

// txService is a payment service behind HandleTx.
type txService struct {
	t *testing.T
	http.Handler
	db *sql.DB
}

// ledger counts what took effect for an operation.
func (s *txService) ledger(op int) (n int) {
	s.t.Helper()
	if err := s.db.QueryRowContext(context.Background(), `SELECT count(*) FROM ledger WHERE op = `+strconv.Itoa(op)).Scan(&n); err != nil {
		s.t.Fatal(err)
	}
	return n
}

func (s *txService) post(key string, op int, how string) (status int, mark, body string) {
	s.t.Helper()
	r := httptest.NewRequest(http.MethodPost, "/payments?op="+strconv.Itoa(op), strings.NewReader(how))
	if key != "" {
		r.Header.Set("Idempotency-Key", key)
	}
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	return w.Code, w.Header().Get("Idempotent-Replayed"), w.Body.String()
}

const largeAnswer = 640 << 10

// newTxService charges, and then ends as the body of the request says.
func newTxService[Tx any](t *testing.T, a *app[Tx], db *sql.DB) *txService {
	t.Helper()
	recv, err := everonce.NewTxReceiver(a.store, &everonce.Options{TxRetries: 50})
	if err != nil {
		t.Fatal(err)
	}
	h, err := httponce.HandleTx(recv, httponce.Unscoped(), func(w http.ResponseWriter, r *http.Request, tx Tx) error {
		op, err := strconv.Atoi(r.URL.Query().Get("op"))
		if err != nil {
			return err
		}
		if err := a.charge(r.Context(), tx, op); err != nil {
			return err
		}
		how, err := io.ReadAll(r.Body)
		if err != nil {
			return err
		}
		switch string(how) {
		case "refuse":
			http.Error(w, "no money", http.StatusPaymentRequired)
		case "release":
			http.Error(w, "later", http.StatusTooManyRequests)
		case "fail":
			return errors.New("the handler failed")
		case "permanent":
			return everonce.Permanent("no_funds", errors.New("the account is empty"), nil)
		case "violate": // the database refuses a statement, and the handler says so
			return a.exec(r.Context(), tx, `INSERT INTO account (id, balance) VALUES (1, 0)`)
		case "large":
			_, err = io.WriteString(w, strings.Repeat("0123456789abcdef", largeAnswer/16))
		case "panic":
			panic(http.ErrAbortHandler)
		default:
			w.WriteHeader(http.StatusCreated)
			_, err = fmt.Fprint(w, "paid ", op)
		}
		return err
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return &txService{t: t, Handler: h, db: db}
}

func handlesTx[Tx any](t *testing.T, a *app[Tx], db *sql.DB) {
	t.Helper()
	s := newTxService(t, a, db)
	for i, c := range []struct {
		how    string
		status int
		body   string // that it begins with
		again  string // the mark of the second
		ledger int
	}{
		{how: "", status: http.StatusCreated, body: "paid", again: "true", ledger: 1},
		{how: "refuse", status: http.StatusPaymentRequired, body: "no money", again: "true"},
		{how: "release", status: http.StatusTooManyRequests, body: "later"},
		{how: "fail", status: http.StatusServiceUnavailable, body: `{"type":`},
		{how: "permanent", status: http.StatusUnprocessableEntity, body: `{"type":`, again: "true"},
		{how: "violate", status: http.StatusServiceUnavailable, body: `{"type":`},
		{how: "large", status: http.StatusOK, body: "0123456789abcdef", again: "true", ledger: 1},
	} {
		t.Run("ends with "+c.how, func(t *testing.T) {
			op, key := 100+i, "key-"+c.how
			var first string
			for _, mark := range []string{"", c.again} {
				status, got, body := s.post(key, op, c.how)
				if status != c.status || got != mark || !strings.HasPrefix(body, c.body) {
					t.Errorf("it got %d, marked %q: %.80s", status, got, body)
				}
				if first == "" {
					first = body
				}
				if body != first {
					t.Errorf("the second is another one: %d bytes, and %d", len(first), len(body))
				}
			}
			if n := s.ledger(op); n != c.ledger {
				t.Errorf("%d effects, want %d", n, c.ledger)
			}
			if status, _, _ := s.post("", op+50, c.how); status != c.status || s.ledger(op+50) != c.ledger {
				t.Errorf("without a key: %d, %d effects", status, s.ledger(op+50))
			}
		})
	}
	t.Run("panics", func(t *testing.T) {
		func() {
			defer func() {
				if p := recover(); p != http.ErrAbortHandler { //nolint:errorlint // the value of a panic
					t.Errorf("it panicked with %v", p)
				}
			}()
			s.post("panic", 300, "panic")
		}()
		if n := s.ledger(300); n != 0 {
			t.Errorf("%d effects", n)
		}
	})
	t.Run("all at once", func(t *testing.T) {
		const clients, ops = 16, 4
		var wg sync.WaitGroup
		for i := range clients {
			wg.Go(func() {
				op := 400 + i%ops
				for {
					status, _, body := s.post("at-once-"+strconv.Itoa(op), op, "")
					if status == http.StatusCreated {
						return
					}
					if status != http.StatusConflict && status != http.StatusServiceUnavailable {
						t.Errorf("it got %d: %s", status, body)
						return
					}
				}
			})
		}
		wg.Wait()
		for op := 400; op < 400+ops; op++ {
			if n := s.ledger(op); n != 1 {
				t.Errorf("operation %d has %d effects", op, n)
			}
		}
	})
}
