package everonce_test

import (
	"context"
	"fmt"

	"github.com/everonce/everonce"
)

// An import rarely meets a duplicate, and never two at once: it looks first and inserts the record
// with the commit. A duplicate is answered by the look alone, and no transaction is begun.
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
