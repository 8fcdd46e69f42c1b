package everonce_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/internal/mapdb"
)

// Tx is the transaction of the examples' database. With PostgreSQL it is pgx.Tx, or *sql.Tx.
type Tx = mapdb.Tx

// openDB opens the examples' database. With PostgreSQL it is pgxstore.New(pool).
func openDB() *mapdb.DB { return mapdb.New() }

// The balance and the record that it was changed are one commit (transactional mode): exactly once, whatever crashes.
func ExampleTransact() {
	ctx := context.Background()
	db := openDB()
	t, err := everonce.NewTxReceiver(db, nil)
	if err != nil {
		panic(err)
	}

	deposit := func(ctx context.Context, tx *Tx) (int, error) {
		return tx.Inc("alice", 100)
	}
	key := everonce.Key{Scope: "deposits", ID: "transfer-1"}
	for range 2 {
		res, err := everonce.Transact(ctx, t, key, deposit)
		fmt.Println(res.Outcome, res.Value, err)
	}
	fmt.Println("alice has", db.Count("alice"))
	// Output:
	// executed 100 <nil>
	// replayed 100 <nil>
	// alice has 100
}

// Where the application has its own transaction, the operation joins it: it holds once that commits.
func ExampleDoTx() {
	ctx := context.Background()
	db := openDB()
	t, err := everonce.NewTxReceiver(db, nil)
	if err != nil {
		panic(err)
	}

	handle := func(message string) error {
		tx := db.BeginTx()
		defer tx.Rollback()
		if _, err := tx.Inc("messages seen", 1); err != nil {
			return err
		}
		res, err := everonce.DoTx(ctx, tx, t, everonce.Key{Scope: "deposits", ID: message}, func(context.Context) (int, error) {
			return tx.Inc("alice", 100)
		})
		if err != nil {
			return err
		}
		fmt.Println(res.Outcome, res.Value, "provisional:", res.Provisional)
		return tx.Commit()
	}
	for range 2 {
		if err := handle("transfer-1"); err != nil {
			panic(err)
		}
	}
	fmt.Println("alice has", db.Count("alice"), "after", db.Count("messages seen"), "messages")
	// Output:
	// executed 100 provisional: true
	// replayed 100 provisional: false
	// alice has 100 after 2 messages
}

// A batch commits together with what an adapter writes beside it. Each message keeps its own key.
func ExampleTxReceiver_InTx() {
	ctx := context.Background()
	db := openDB()
	t, err := everonce.NewTxReceiver(db, nil)
	if err != nil {
		panic(err)
	}

	consume := func(offset int, messages ...string) {
		counts := map[everonce.Outcome]int{}
		err := t.InTx(ctx, func(ctx context.Context, tx *Tx) error {
			clear(counts) // it may run again
			for _, m := range messages {
				res, err := everonce.DoTx(ctx, tx, t, everonce.Key{Scope: "deposits", ID: m}, func(context.Context) (int, error) {
					return tx.Inc("alice", 100)
				})
				if err != nil {
					return err
				}
				counts[res.Outcome]++
			}
			_, err := tx.Inc("offset", offset)
			return err
		})
		fmt.Println(counts[everonce.Executed], "executed,", counts[everonce.Replayed], "replayed,", err)
	}
	consume(3, "a", "b", "c")
	consume(2, "c", "d") // the broker lost an acknowledgement
	fmt.Println("alice has", db.Count("alice"))
	// Output:
	// 3 executed, 0 replayed, <nil>
	// 1 executed, 1 replayed, <nil>
	// alice has 400
}

// A charge in the database and an e-mail outside of it are one operation: the charge commits with its
// step, and is there when the e-mail has to be tried again.
func ExampleStepTx() {
	ctx := context.Background()
	db := openDB()
	opts := &everonce.Options{EffectsInSteps: true}
	r, err := everonce.NewReceiver(db, everonce.Refuse, opts)
	if err != nil {
		panic(err)
	}
	t, err := everonce.NewTxReceiver(db, nil)
	if err != nil {
		panic(err)
	}

	mailServerUp := false
	order := func(ctx context.Context, a *everonce.Attempt) (int, error) {
		balance, err := everonce.StepTx(ctx, a, t, "charge", func(_ context.Context, tx *Tx) (int, error) {
			return tx.Inc("alice", -30)
		})
		if err != nil {
			return 0, err
		}
		_, err = everonce.Step(ctx, a, "mail", func(context.Context) (struct{}, error) {
			if !mailServerUp {
				return struct{}{}, everonce.NotDone(errors.New("connection refused"))
			}
			fmt.Println("mail: your balance is", balance)
			return struct{}{}, nil
		})
		return balance, err
	}
	for range 3 {
		res, err := everonce.Do(ctx, r, everonce.Key{Scope: "orders", ID: "7"}, order)
		fmt.Println(res.Outcome, err)
		mailServerUp = true
	}
	fmt.Println("alice has", db.Count("alice"))
	// Output:
	// failed step "mail": connection refused
	// mail: your balance is -30
	// executed <nil>
	// replayed <nil>
	// alice has -30
}
