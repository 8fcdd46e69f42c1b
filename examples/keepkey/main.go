// Command keepkey is a shop that pays its orders through an HTTP API, and may be killed at any moment: it asks again
// with the key that it wrote down beside the order. The API's address is an argument; an order to take first may
// follow:
//
//	keepkey shop.db http://127.0.0.1:8080 order-7 1200
//	keepkey shop.db http://127.0.0.1:8080
package main

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/everonce/everonce/httponce/client"
	"github.com/everonce/everonce/store/sqlitestore"
)

const schema = `CREATE TABLE IF NOT EXISTS orders (id TEXT PRIMARY KEY, cents INTEGER NOT NULL, payment_key TEXT NOT NULL UNIQUE, receipt TEXT)`

type order struct {
	id    string
	cents int64
	key   string // of its payment
}

type shop struct {
	db     *sql.DB
	client *http.Client
	api    string
	out    io.Writer
}

// newClient returns a client that sends an operation again, under one key, until there is an answer.
func newClient() (*http.Client, error) {
	transport, err := client.NewTransport(nil, &client.Options{AttemptTimeout: 10 * time.Second})
	if err != nil {
		return nil, err
	}
	return &http.Client{Transport: transport}, nil
}

// take writes down an order, and in the same transaction the key under which it will be paid.
func (s *shop) take(ctx context.Context, id string, cents int64) error {
	_, err := s.db.ExecContext(ctx, `INSERT INTO orders (id, cents, payment_key) VALUES (?, ?, ?)`, id, cents, rand.Text())
	return err
}

// pay sends the payment of an order. The request is made only of stored values, and so is the same each time.
func (s *shop) pay(ctx context.Context, o order) error {
	body := strings.NewReader(fmt.Sprintf(`{"order": %q, "cents": %d}`, o.id, o.cents))
	req, err := http.NewRequestWithContext(client.WithKey(ctx, o.key), http.MethodPost, s.api+"/charges", body)
	if err != nil {
		return err
	}
	resp, err := s.client.Do(req)
	if err != nil {
		return err // the outcome is unknown: the order stays unpaid, and is tried again
	}
	receipt, err := io.ReadAll(resp.Body)
	if err = errors.Join(err, resp.Body.Close()); err != nil {
		return err
	}
	if resp.StatusCode != http.StatusCreated {
		return fmt.Errorf("%s: the API answered %s", o.id, resp.Status)
	}
	_, err = s.db.ExecContext(ctx, `UPDATE orders SET receipt = ? WHERE id = ?`, string(receipt), o.id)
	return err
}

// resume pays all orders that have no receipt: new ones, and those whose answer was lost with an earlier process.
func (s *shop) resume(ctx context.Context) error {
	orders, err := s.unpaid(ctx)
	if err != nil {
		return err
	}
	var failed []error
	for _, o := range orders {
		if err := s.pay(ctx, o); err != nil {
			failed = append(failed, err) // one that the API refuses holds up no other
			continue
		}
		fmt.Fprintln(s.out, o.id, "is paid")
	}
	return errors.Join(failed...)
}

func (s *shop) unpaid(ctx context.Context) (orders []order, err error) {
	rows, err := s.db.QueryContext(ctx, `SELECT id, cents, payment_key FROM orders WHERE receipt IS NULL ORDER BY id`)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		var o order
		if err := rows.Scan(&o.id, &o.cents, &o.key); err != nil {
			return nil, err
		}
		orders = append(orders, o)
	}
	return orders, rows.Err()
}

// refund gives an order's money back. An order has one refund, ever: its name is key enough.
func (s *shop) refund(ctx context.Context, id string) error {
	ctx = client.WithKey(ctx, "refund-"+id)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.api+"/refunds", strings.NewReader(fmt.Sprintf(`{"order": %q}`, id)))
	if err != nil {
		return err
	}
	resp, err := s.client.Do(req)
	if err != nil {
		return err
	}
	if err := resp.Body.Close(); err != nil {
		return err
	}
	if resp.StatusCode != http.StatusCreated {
		return fmt.Errorf("%s: the API answered %s", id, resp.Status)
	}
	return nil
}

func main() {
	if err := run(context.Background(), os.Stdout, os.Args[1:]); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, out io.Writer, args []string) (err error) {
	if len(args) != 2 && len(args) != 4 {
		return errors.New("usage: keepkey FILE API [ORDER CENTS]")
	}
	store, err := sqlitestore.Open(ctx, args[0], nil) // here for its database only
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	if _, err := store.DB().ExecContext(ctx, schema); err != nil {
		return err
	}
	client, err := newClient()
	if err != nil {
		return err
	}
	s := &shop{db: store.DB(), client: client, api: args[1], out: out}
	if len(args) == 4 {
		cents, err := strconv.ParseInt(args[3], 10, 64)
		if err != nil {
			return err
		}
		if err := s.take(ctx, args[2], cents); err != nil {
			return err
		}
	}
	return s.resume(ctx)
}
