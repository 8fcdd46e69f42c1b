// Command mail is the payment service that also sends a mail: an effect outside of its database.
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
	"os"
	"time"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/store/sqlitestore"
)

type bank struct {
	db       *sql.DB
	database *everonce.TxReceiver[*sql.Tx] // for what is in the database
	guarded  *everonce.Receiver            // for what is not
	slow     time.Duration
}

// Charge is what a client sends.
type Charge struct {
	Account string `json:"account"`
	Cents   int64  `json:"cents"`
}

// Receipt is what it gets, the first time and every time after.
type Receipt struct {
	Charged int64 `json:"charged"`
	Balance int64 `json:"balance"`
}

func (b *bank) charge(w http.ResponseWriter, r *http.Request) {
	var c Charge
	if err := json.NewDecoder(r.Body).Decode(&c); err != nil {
		http.Error(w, "the body is no charge", http.StatusBadRequest)
		return
	}
	key := everonce.Key{Scope: "charge", ID: r.Header.Get("Idempotency-Key")}

	res, err := everonce.Do(r.Context(), b.guarded, key, func(ctx context.Context, a *everonce.Attempt) (Receipt, error) {
		balance, err := everonce.StepTx(ctx, a, b.database, "charge", func(ctx context.Context, tx *sql.Tx) (int64, error) {
			return take(ctx, tx, c)
		})
		if err != nil {
			return Receipt{}, err
		}
		_, err = everonce.Step(ctx, a, "mail", func(context.Context) (struct{}, error) {
			return struct{}{}, b.mail(fmt.Sprintf("%s was charged %d", c.Account, c.Cents))
		})
		return Receipt{Charged: c.Cents, Balance: balance}, err
	}, everonce.EffectsInSteps(), everonce.FingerprintOf(c.Account, c.Cents))

	log.Printf("%s: %v", c.Account, res.Outcome)
	if err != nil {
		http.Error(w, err.Error(), status(res.Outcome))
		return
	}
	if err := json.NewEncoder(w).Encode(res.Value); err != nil {
		log.Print(err)
	}
}

func take(ctx context.Context, tx *sql.Tx, c Charge) (balance int64, err error) {
	err = tx.QueryRowContext(ctx,
		`UPDATE account SET cents = cents - ? WHERE id = ? AND cents >= ? RETURNING cents`,
		c.Cents, c.Account, c.Cents).Scan(&balance)
	if errors.Is(err, sql.ErrNoRows) {
		return 0, everonce.Permanent("no_funds", errors.New("the balance is too low"), nil)
	}
	return balance, err
}

// mail hands a mail to a mail server. This one is a file.
func (b *bank) mail(text string) error {
	f, err := os.OpenFile("mails.txt", os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return everonce.NotDone(err) // no mail was sent: that much is known
	}
	_, err = fmt.Fprintln(f, text)
	log.Print("mail sent, not recorded yet")
	time.Sleep(b.slow) // time to pull the plug
	return errors.Join(err, f.Close())
}

func status(o everonce.Outcome) int {
	switch o {
	case everonce.Rejected:
		return http.StatusPaymentRequired
	case everonce.Mismatch:
		return http.StatusUnprocessableEntity
	case everonce.InProgress:
		return http.StatusConflict
	case everonce.Invalid:
		return http.StatusBadRequest
	case everonce.Unknown:
		return http.StatusInternalServerError // until somebody settles it
	case everonce.Expired, everonce.Elided:
		return http.StatusGone // it was answered before, and the answer is no longer kept
	}
	return http.StatusServiceUnavailable // send it again, with the same key
}

func (b *bank) balance(w http.ResponseWriter, r *http.Request) {
	var cents int64
	err := b.db.QueryRowContext(r.Context(), `SELECT cents FROM account WHERE id = ?`, r.PathValue("account")).Scan(&cents)
	if err != nil {
		http.Error(w, err.Error(), http.StatusNotFound)
		return
	}
	fmt.Fprintln(w, cents)
}

func main() {
	listen := flag.String("listen", "127.0.0.1:8080", "the `address` to listen at")
	slow := flag.Duration("slow", 0, "how long the mail server takes")
	flag.Parse()
	if err := serve(*listen, *slow); err != nil {
		log.Fatal(err)
	}
}

func serve(listen string, slow time.Duration) error {
	store, err := sqlitestore.Open(context.Background(), "bank.db", nil)
	if err != nil {
		return err
	}
	b := &bank{db: store.DB(), slow: slow}
	if b.database, err = everonce.NewTxReceiver(store, nil); err != nil {
		return err
	}
	// A short lease, so that no caller waits long for a process that is gone. It is renewed while the work runs, however
	// long that takes.
	if b.guarded, err = everonce.NewReceiver(store, everonce.Refuse, &everonce.Options{Lease: 3 * time.Second}); err != nil {
		return err
	}
	for _, text := range []string{
		`CREATE TABLE IF NOT EXISTS account (id TEXT PRIMARY KEY, cents INTEGER NOT NULL)`,
		`INSERT INTO account VALUES ('alice', 10000) ON CONFLICT DO NOTHING`,
	} {
		if _, err := b.db.ExecContext(context.Background(), text); err != nil {
			return err
		}
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /charge", b.charge)
	mux.HandleFunc("GET /balance/{account}", b.balance)
	socket, err := new(net.ListenConfig).Listen(context.Background(), "tcp", listen)
	if err != nil {
		return err
	}
	log.Printf("listening at http://%s", socket.Addr())
	server := http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	return server.Serve(socket)
}
