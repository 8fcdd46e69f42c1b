package sqlsession_test

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"database/sql"
	"fmt"
	"time"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/session"
	"github.com/everonce/everonce/session/sqlsession"
)

// A request moves money, and its answer is kept in the same commit. It is sent twice, and takes effect once.
func ExampleStore_Apply() {
	ctx := context.Background()
	receiver := receiverOfYourStore() // on store/pgxstore, store/mysqlstore or store/sqlitestore
	store, err := sqlsession.New(receiver, session.Config{Lease: 10 * time.Minute}, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := store.Migrate(ctx); err != nil {
		fmt.Println(err)
		return
	}
	withdraw := func(ctx context.Context, tx *sql.Tx, payload []byte) ([]byte, error) {
		_, err := tx.ExecContext(ctx, "UPDATE account SET balance = balance - 10 WHERE owner = $1", string(payload))
		return []byte("done"), err
	}

	// The client's half: it registers, and numbers its requests.
	var nonce session.Nonce
	_, _ = rand.Read(nonce[:])
	// The principal is whom the service has authenticated, whatever the client's command says.
	registered, err := store.Apply(ctx, &session.Command{Op: session.Register, Nonce: nonce, Principal: "alice"}, nil)
	if err != nil || registered.Err != 0 {
		fmt.Println(err, registered.Err.Or())
		return
	}
	payload := []byte("alice")
	command := session.Command{
		Op: session.Request, Session: registered.Session, Nonce: nonce,
		Number: 1, Fingerprint: sha256.Sum256(payload), Payload: payload,
	}
	for range 2 {
		answer, err := store.Apply(ctx, &command, withdraw)
		fmt.Println(string(answer.Result), answer.Replayed, answer.Err.Or(), err)
	}
}

// Sessions whose lease is over are removed now and then, by any process.
func ExampleStore_Purge() {
	ctx := context.Background()
	store, err := sqlsession.New(receiverOfYourStore(), session.Config{Lease: 10 * time.Minute}, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	for range time.Tick(time.Minute) {
		if _, err := store.Purge(ctx, 10_000); err != nil {
			fmt.Println(err)
		}
	}
}

func receiverOfYourStore() *everonce.TxReceiver[*sql.Tx] { return nil }
