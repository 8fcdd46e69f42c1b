// Command session is a payment service: it takes money off an account, once per numbered request of a session.
package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log"
	"net"
	"net/http"
	"time"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/httponce"
	"github.com/everonce/everonce/session"
	"github.com/everonce/everonce/session/sqlsession"
	"github.com/everonce/everonce/store/sqlitestore"
)

// Charge is what a client sends.
type Charge struct {
	Order   string `json:"order"`
	Account string `json:"account"`
	Cents   int64  `json:"cents"`
}

// Receipt is what it gets, the first time and every time after.
type Receipt struct {
	Charged int64 `json:"charged"`
	Balance int64 `json:"balance"`
}

type bank struct {
	db   *sql.DB
	slow time.Duration
}

func (b *bank) charge(w http.ResponseWriter, r *http.Request, tx *sql.Tx) error {
	var c Charge
	if err := json.NewDecoder(r.Body).Decode(&c); err != nil {
		http.Error(w, "the body is no charge", http.StatusBadRequest)
		return nil
	}
	var balance int64
	err := tx.QueryRowContext(r.Context(),
		`UPDATE account SET cents = cents - ? WHERE id = ? AND cents >= ? RETURNING cents`,
		c.Cents, c.Account, c.Cents).Scan(&balance)
	if errors.Is(err, sql.ErrNoRows) {
		http.Error(w, "the balance is too low", http.StatusPaymentRequired)
		return nil
	}
	if err != nil {
		return err
	}
	if _, err := tx.ExecContext(r.Context(), `INSERT INTO charge VALUES (?, ?, ?)`, c.Order, c.Account, c.Cents); err != nil {
		return err
	}
	log.Printf("%s: charged, not committed yet", c.Account)
	time.Sleep(b.slow) // time to pull the plug
	return json.NewEncoder(w).Encode(Receipt{Charged: c.Cents, Balance: balance})
}

func (b *bank) balance(w http.ResponseWriter, r *http.Request) {
	b.number(w, r, `SELECT cents FROM account WHERE id = ?`, r.PathValue("account"))
}

// charges tells how often an order was charged.
func (b *bank) charges(w http.ResponseWriter, r *http.Request) {
	b.number(w, r, `SELECT count(*) FROM charge WHERE for_order = ?`, r.PathValue("order"))
}

// kept tells how many answers the sessions have kept.
func (b *bank) kept(w http.ResponseWriter, r *http.Request) {
	b.number(w, r, `SELECT count(*) FROM everonce_session_answer`)
}

func (b *bank) number(w http.ResponseWriter, r *http.Request, query string, args ...any) {
	var n int64
	if err := b.db.QueryRowContext(r.Context(), query, args...).Scan(&n); err != nil {
		http.Error(w, err.Error(), http.StatusNotFound)
		return
	}
	fmt.Fprintln(w, n)
}

func main() {
	listen := flag.String("listen", "127.0.0.1:8080", "the `address` to listen at")
	slow := flag.Duration("slow", 0, "how long the bank takes")
	flag.Parse()
	if err := serve(*listen, *slow); err != nil {
		log.Fatal(err)
	}
}

func serve(listen string, slow time.Duration) error {
	ctx := context.Background()
	store, err := sqlitestore.Open(ctx, "bank.db", nil)
	if err != nil {
		return err
	}
	receiver, err := everonce.NewTxReceiver(store, nil)
	if err != nil {
		return err
	}
	sessions, err := sqlsession.New(receiver, session.Config{Lease: time.Hour}, nil)
	if err != nil {
		return err
	}
	if err := sessions.Migrate(ctx); err != nil {
		return err
	}
	b := &bank{db: store.DB(), slow: slow}
	for _, text := range []string{
		`CREATE TABLE IF NOT EXISTS account (id TEXT PRIMARY KEY, cents INTEGER NOT NULL)`,
		`CREATE TABLE IF NOT EXISTS charge (for_order TEXT NOT NULL, account TEXT NOT NULL, cents INTEGER NOT NULL)`,
		`INSERT INTO account VALUES ('alice', 10000) ON CONFLICT DO NOTHING`,
	} {
		if _, err := b.db.ExecContext(ctx, text); err != nil {
			return err
		}
	}

	caller := httponce.Unscoped() // all callers are one party here
	charge, err := httponce.HandleSession(sessions, caller, b.charge, nil)
	if err != nil {
		return err
	}
	register, err := httponce.Sessions(sessions, caller, nil)
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.Handle("POST /charge", charge)
	mux.Handle("/sessions", register)
	mux.HandleFunc("GET /balance/{account}", b.balance)
	mux.HandleFunc("GET /charges/{order}", b.charges)
	mux.HandleFunc("GET /kept", b.kept)

	go func() { // sessions whose lease is over take up room until somebody removes them
		for range time.Tick(time.Minute) {
			if _, err := sessions.Purge(ctx, 10_000); err != nil {
				log.Print(err)
			}
		}
	}()
	socket, err := new(net.ListenConfig).Listen(ctx, "tcp", listen)
	if err != nil {
		return err
	}
	log.Printf("listening at http://%s", socket.Addr())
	server := http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	return server.Serve(socket)
}
