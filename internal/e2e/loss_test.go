package e2e

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/httponce"
	"github.com/everonce/everonce/httponce/client"
	"github.com/everonce/everonce/store/memstore"
	"github.com/everonce/everonce/store/sqlitestore"
)

const (
	lossShare   = 0.3
	lossWorkers = 32
)

// booking is what the service does with an order: a line in its ledger, whose number is the answer.
type booking struct {
	Order string `json:"order"`
	Line  int64  `json:"line"`
}

// memoryDir returns a folder in memory where the system has one: what a commit costs on a disk is not what is tested.
func memoryDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "everonce-e2e-") //nolint:usetesting // that is on a disk
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// openBooks opens a store with a ledger beside its records.
func openBooks(t *testing.T) *sqlitestore.Store {
	t.Helper()
	store, err := sqlitestore.Open(t.Context(), filepath.Join(memoryDir(t), "service.db"), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	if _, err := store.DB().ExecContext(t.Context(), `CREATE TABLE ledger (line INTEGER PRIMARY KEY, op TEXT NOT NULL) STRICT`); err != nil {
		t.Fatal(err)
	}
	return store
}

// book enters a request's order, and answers with its line.
func book(w http.ResponseWriter, r *http.Request, enter func(order string) (line int64, err error)) error {
	order, err := io.ReadAll(r.Body)
	if err != nil {
		return err
	}
	line, err := enter(string(order))
	if err != nil {
		return err
	}
	w.Header().Set("Location", fmt.Sprint("/lines/", line))
	w.WriteHeader(http.StatusCreated)
	return json.NewEncoder(w).Encode(booking{string(order), line})
}

// ledger is a ledger in memory: it books every call.
type ledger struct {
	mu     sync.Mutex
	orders []string
}

func (l *ledger) enter(order string) (line int64, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.orders = append(l.orders, order)
	return int64(len(l.orders)), nil
}

// lines returns the lines of each order.
func (l *ledger) lines() map[string][]int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	lines := map[string][]int64{}
	for i, order := range l.orders {
		lines[order] = append(lines[order], int64(i)+1)
	}
	return lines
}

// lossOperations is how many operations are sent.
func lossOperations() int {
	if testing.Short() {
		return 1000
	}
	return 10_000
}

// TestLossHandleTx: operations over real connections that lose 30 % of the requests and of the answers, against a
// transactional handler on SQLite: each has one line in the ledger, and every caller the answer of that line.
func TestLossHandleTx(t *testing.T) {
	t.Parallel()
	store := openBooks(t)
	recv, err := everonce.NewTxReceiver(store, nil)
	if err != nil {
		t.Fatal(err)
	}
	h, err := httponce.HandleTx(recv, httponce.Unscoped(), func(w http.ResponseWriter, r *http.Request, tx *sql.Tx) error {
		return book(w, r, func(order string) (int64, error) {
			res, err := tx.ExecContext(r.Context(), `INSERT INTO ledger (op) VALUES (?)`, order)
			if err != nil {
				return 0, err
			}
			return res.LastInsertId()
		})
	}, &httponce.Options{Route: httponce.Route{Required: true, Wait: time.Minute}})
	if err != nil {
		t.Fatal(err)
	}
	auditLoss(t, lossOperations(), h, func() map[string][]int64 {
		rows, err := store.DB().QueryContext(t.Context(), `SELECT op, line FROM ledger`)
		if err != nil {
			t.Fatal(err)
		}
		defer rows.Close()
		lines := map[string][]int64{}
		for rows.Next() {
			var op string
			var line int64
			if err := rows.Scan(&op, &line); err != nil {
				t.Fatal(err)
			}
			lines[op] = append(lines[op], line)
		}
		if err := rows.Err(); err != nil {
			t.Fatal(err)
		}
		return lines
	})
}

// TestLossMiddleware is the same with operations whose effect is not in the record's transaction, under Refuse: the
// middleware keeps what a client did not hear.
func TestLossMiddleware(t *testing.T) {
	t.Parallel()
	recv, err := everonce.NewReceiver(memstore.New(nil), everonce.Refuse, nil)
	if err != nil {
		t.Fatal(err)
	}
	protect, err := httponce.Middleware(recv, httponce.Unscoped(), &httponce.Options{Route: httponce.Route{Required: true, Wait: time.Minute}})
	if err != nil {
		t.Fatal(err)
	}
	var l ledger
	auditLoss(t, lossOperations(), protect(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := book(w, r, l.enter); err != nil {
			t.Errorf("the effect failed: %v", err)
		}
	})), l.lines)
}

// auditLoss sends so many operations, and compares the answers with the ledger.
func auditLoss(t *testing.T, operations int, h http.Handler, ledger func() map[string][]int64) {
	t.Helper()
	server := httptest.NewServer(h)
	defer server.Close()
	lossy := newLossyNet(seedOf(t), lossShare)
	tr, err := client.NewTransport(&http.Transport{DialContext: lossy.dial, MaxIdleConnsPerHost: lossWorkers}, &client.Options{
		MaxAttempts: 1000, MaxElapsed: 5 * time.Minute, Backoff: time.Millisecond, MaxBackoff: 4 * time.Millisecond,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer tr.CloseIdleConnections()
	sender := &http.Client{Transport: tr}
	answered := sendAll(t, sender, server.URL, operations)

	lines := ledger()
	for op, l := range lines {
		if len(l) != 1 || answered[op] != l[0] {
			t.Errorf("%s has the lines %v; its client was answered %d", op, l, answered[op])
		}
	}
	if len(lines) != operations {
		t.Errorf("%d operations took effect, want %d", len(lines), operations)
	}
	sent, requests, answers := lossy.writes.Load(), lossy.requestsCut.Load(), lossy.answersCut.Load()
	t.Logf("%d requests were sent: %d were cut, and %d answers", sent, requests, answers)
	if requests < sent/4 || answers < (sent-requests)/4 {
		t.Error("the network is too good to show anything")
	}
}

// sendAll sends every operation until it is answered, and returns the answers.
func sendAll(t *testing.T, sender *http.Client, url string, operations int) map[string]int64 {
	t.Helper()
	var mu sync.Mutex
	lines := make(map[string]int64, operations)
	orders := make(chan string)
	var workers sync.WaitGroup
	for range lossWorkers {
		workers.Go(func() {
			for order := range orders {
				b, err := sendOrder(t.Context(), sender, url, order)
				if err != nil || b.Order != order {
					t.Errorf("%s was answered %+v, %v", order, b, err)
					continue
				}
				mu.Lock()
				lines[order] = b.Line
				mu.Unlock()
			}
		})
	}
	for i := range operations {
		orders <- fmt.Sprint("order-", i)
	}
	close(orders)
	workers.Wait()
	return lines
}

func sendOrder(ctx context.Context, sender *http.Client, url, order string) (b booking, err error) {
	req, err := http.NewRequestWithContext(client.WithKey(ctx, "book-"+order), http.MethodPost, url, strings.NewReader(order))
	if err != nil {
		return b, err
	}
	res, err := sender.Do(req)
	if err != nil {
		return b, err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		return b, err
	}
	if res.StatusCode != http.StatusCreated {
		return b, fmt.Errorf("%d: %s", res.StatusCode, text)
	}
	if err = json.Unmarshal(text, &b); err == nil && res.Header.Get("Location") != fmt.Sprint("/lines/", b.Line) {
		err = fmt.Errorf("the Location is %q", res.Header.Get("Location"))
	}
	return b, err
}
