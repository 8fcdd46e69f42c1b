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

// A charge in the database and an e-mail outside of it are one operation: the charge commits with its step, and is
// kept when the e-mail must be tried again.
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

// An import rarely has a duplicate, and never two at once: it looks first and inserts the record with the commit.
// The look alone answers a duplicate, without a transaction.
func ExampleOptimistic() {
	ctx := context.Background()
	db := openDB()
	t, err := everonce.NewTxReceiver(db, nil)
	if err != nil {
		panic(err)
	}

	for _, line := range []string{"line-1", "line-2", "line-1"} {
		key := everonce.Key{Scope: everonce.ScopeOf("import", "2026-03"), ID: line}
		res, err := everonce.Transact(ctx, t, key, func(_ context.Context, tx *Tx) (int, error) {
			return tx.Inc("alice", 100)
		}, everonce.Optimistic())
		fmt.Println(res.Outcome, res.Value, err)
	}
	fmt.Println("alice has", db.Count("alice"))
	// Output:
	// executed 100 <nil>
	// executed 200 <nil>
	// replayed 100 <nil>
	// alice has 200
}

// Many operations commit together, and one that fails does not fail the others.
func ExampleTransactBatch() {
	ctx := context.Background()
	db := openDB()
	t, err := everonce.NewTxReceiver(db, nil)
	if err != nil {
		panic(err)
	}

	transfers := []string{"transfer-1", "transfer-2", "forged", "transfer-1"}
	items := make([]everonce.BatchItem, len(transfers))
	for i, id := range transfers {
		items[i].Key = everonce.Key{Scope: "deposits", ID: id}
	}
	results, err := everonce.TransactBatch(ctx, t, items, everonce.EachItem(func(_ context.Context, tx *Tx, i int) (int, error) {
		if transfers[i] == "forged" {
			return 0, everonce.Permanent("forged", errors.New("the signature is wrong"), nil)
		}
		return tx.Inc("alice", 100)
	}))
	if err != nil {
		panic(err)
	}
	for i, res := range results {
		fmt.Println(transfers[i], res.Outcome, res.Value, res.Err)
	}
	fmt.Println("alice has", db.Count("alice"))
	// Output:
	// transfer-1 executed 100 <nil>
	// transfer-2 executed 200 <nil>
	// forged rejected 0 forged: the signature is wrong
	// transfer-1 replayed 100 <nil>
	// alice has 200
}

// Where the database can do the work of all operations by one statement, that is one round trip.
func ExampleBatchWork() {
	ctx := context.Background()
	db := openDB()
	t, err := everonce.NewTxReceiver(db, nil)
	if err != nil {
		panic(err)
	}

	amounts := []int{100, 20, 3}
	items := make([]everonce.BatchItem, len(amounts))
	for i := range items {
		items[i].Key = everonce.Key{Scope: "deposits", ID: fmt.Sprintf("transfer-%d", i)}
	}
	deposit := func(_ context.Context, tx *Tx, todo []int) ([]struct{}, error) {
		sum := 0
		for _, i := range todo {
			sum += amounts[i]
		}
		_, err := tx.Inc("alice", sum)
		return make([]struct{}, len(todo)), err
	}
	for range 2 {
		results, err := everonce.TransactBatch(ctx, t, items, deposit)
		if err != nil {
			panic(err)
		}
		fmt.Println(results[0].Outcome, results[1].Outcome, results[2].Outcome)
	}
	fmt.Println("alice has", db.Count("alice"))
	// Output:
	// executed executed executed
	// replayed replayed replayed
	// alice has 123
}

// The work is written for one operation, and the batch knows which one failed.
func ExampleEachItem() {
	db := openDB()
	t, err := everonce.NewTxReceiver(db, nil)
	if err != nil {
		panic(err)
	}
	items := []everonce.BatchItem{
		{Key: everonce.Key{Scope: "deposits", ID: "a"}}, {Key: everonce.Key{Scope: "deposits", ID: "b"}},
	}
	work := everonce.EachItem(func(_ context.Context, tx *Tx, i int) (string, error) {
		_, err := tx.Inc("alice", 1)
		return items[i].Key.ID + " is done", err
	})
	results, err := everonce.TransactBatch(context.Background(), t, items, work)
	fmt.Println(results[0].Value, "·", results[1].Value, err)
	// Output: a is done · b is done <nil>
}
