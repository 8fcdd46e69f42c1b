package everonce_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/everonce/everonce"
)

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
