package sqlitestore

import (
	"database/sql"
	"errors"
	"runtime"
	"testing"
	"time"

	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/internal/sqldb"
	"github.com/everonce/everonce/internal/sqlstore"
)

// When a transaction that ran out of time is said to be over, it is: its key and the writer are free.
func TestAnExpiredTransactionIsOverWhenItSaysSo(t *testing.T) {
	s := openTest(t, nil)
	ctx := t.Context()
	for what, end := range map[string]func(c sqldb.TxConn[*sql.Tx]) error{
		"Rollback": func(c sqldb.TxConn[*sql.Tx]) error { return c.Rollback(ctx) },
		"Commit":   func(c sqldb.TxConn[*sql.Tx]) error { return c.Commit(ctx) },
	} {
		t.Run(what, func(t *testing.T) {
			claim := claimOf("expired by " + what)
			var c sqldb.TxConn[*sql.Tx]
			var open *openTx
			for limit := time.Millisecond; ; limit *= 2 {
				var err error
				c, err = s.db.Begin(ctx, sqlstore.BeginOptions{Timeout: limit, Key: &claim.ID})
				if errors.Is(err, driver.ErrTxTooLong) { // it came before even Begin had returned
					continue
				}
				if err != nil {
					t.Fatal(err)
				}
				open = c.(*txConn).open
				open.conn.mu.Lock() // so that the end, which its time has begun, does not come to the connection
				if !open.ended() {
					break
				}
				open.conn.mu.Unlock() // it came before: once more, with more time
				_ = c.Rollback(ctx)   //nolint:errcheck // it is over
			}
			for !c.(*txConn).expired.Load() {
				runtime.Gosched()
			}
			over := make(chan bool, 1)
			go func() {
				err := end(c)
				if what == "Commit" && err == nil {
					t.Error("it was committed")
				}
				over <- open.ended()
			}()
			select {
			case ended := <-over:
				t.Errorf("the call has returned, and the transaction is over: %v", ended)
				open.conn.mu.Unlock()
				return
			case <-time.After(50 * time.Millisecond): // more shows nothing else: with the lock held it cannot be over
			}
			open.conn.mu.Unlock()
			if !<-over {
				t.Error("the call returned before the transaction was over")
			}
			if res, err := s.Claim(ctx, claim); err != nil || res.Decision != driver.DecideClaimed {
				t.Errorf("the key afterwards: %v, %v", res.Decision, err)
			}
		})
	}
}
