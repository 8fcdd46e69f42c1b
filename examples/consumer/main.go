// Command consumer works through a queue that delivers at least once: it books each message once, and
// acknowledges after the commit.
package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"path/filepath"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/store/sqlitestore"
)

// Message is one delivery.
type Message struct {
	ID    string // the producer's own: the broker's may change when it is sent again
	Cents int64
}

// disposition is what becomes of a delivery.
type disposition string

const (
	acknowledge disposition = "acknowledge"
	redeliver   disposition = "redeliver"
	deadLetter  disposition = "dead letter"
)

// consumer books deposits.
type consumer struct {
	receiver *everonce.TxReceiver[*sql.Tx]
	booked   int
	skipped  int // counted, not an error
}

// handle is called for every delivery.
func (c *consumer) handle(ctx context.Context, m Message) disposition {
	key := everonce.Key{Scope: everonce.ScopeOf("bank", "deposits"), ID: m.ID}
	res, err := everonce.Transact(ctx, c.receiver, key, func(ctx context.Context, tx *sql.Tx) (struct{}, error) {
		if m.Cents <= 0 {
			return struct{}{}, everonce.Permanent("not_positive", errors.New("a deposit is positive"), nil)
		}
		_, err := tx.ExecContext(ctx, `UPDATE account SET cents = cents + ?`, m.Cents)
		return struct{}{}, err
	}, everonce.FingerprintOf(m.Cents), everonce.WithLifetime(everonce.ForQueue()))
	switch res.Outcome {
	case everonce.Executed:
		c.booked++
		return acknowledge
	case everonce.Replayed, everonce.Expired, everonce.Elided:
		if e, ok := errors.AsType[*everonce.Error](err); ok && e.Refused() {
			return deadLetter // rejected, long ago
		}
		c.skipped++
		return acknowledge
	case everonce.Rejected, everonce.Mismatch, everonce.Invalid:
		log.Printf("message %s: %v", m.ID, err)
		return deadLetter
	default: // in progress, failed, unknown, store_failed: nothing was lost, and it will come again
		log.Printf("message %s: %v", m.ID, err)
		return redeliver
	}
}

// consume works until the queue is empty.
func (c *consumer) consume(ctx context.Context, q *queue) {
	for {
		m, ok := q.next()
		if !ok {
			return
		}
		d := c.handle(ctx, m)
		q.settle(m, d)
	}
}

// queue delivers at least once: acknowledgements get lost.
type queue struct {
	out      io.Writer
	messages []Message
	lost     int // how many acknowledgements will be lost
}

func (q *queue) next() (Message, bool) {
	if len(q.messages) == 0 {
		return Message{}, false
	}
	m := q.messages[0]
	q.messages = q.messages[1:]
	return m, true
}

func (q *queue) settle(m Message, d disposition) {
	fmt.Fprintf(q.out, "%s: %s", m.ID, d)
	if d == acknowledge && q.lost > 0 {
		q.lost--
		q.messages = append(q.messages, m)
		fmt.Fprint(q.out, ", which is lost")
	}
	if d == redeliver {
		q.messages = append(q.messages, m)
	}
	fmt.Fprintln(q.out)
}

func main() {
	dir, err := os.MkdirTemp("", "everonce-consumer-")
	if err != nil {
		log.Fatal(err)
	}
	err = run(context.Background(), os.Stdout, filepath.Join(dir, "bank.db"))
	if err = errors.Join(err, os.RemoveAll(dir)); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, out io.Writer, file string) (err error) {
	store, err := sqlitestore.Open(ctx, file, nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	receiver, err := everonce.NewTxReceiver(store, nil)
	if err != nil {
		return err
	}
	for _, text := range []string{`CREATE TABLE account (cents INTEGER NOT NULL)`, `INSERT INTO account VALUES (0)`} {
		if _, err := store.DB().ExecContext(ctx, text); err != nil {
			return err
		}
	}
	c := &consumer{receiver: receiver}
	c.consume(ctx, &queue{out: out, lost: 2, messages: []Message{
		{"deposit-1", 100}, {"deposit-2", 250}, {"deposit-2", 250}, {"deposit-3", -5}, {"deposit-1", 999},
	}})
	var balance int64
	if err := store.DB().QueryRowContext(ctx, `SELECT cents FROM account`).Scan(&balance); err != nil {
		return err
	}
	fmt.Fprintf(out, "booked %d, skipped %d, balance %d\n", c.booked, c.skipped, balance)
	return nil
}
