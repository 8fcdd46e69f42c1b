package everonce_test

import (
	"context"
	"fmt"

	"github.com/everonce/everonce"
)

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
