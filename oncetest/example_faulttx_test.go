package oncetest

import (
	"context"
	"fmt"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/internal/mapdb"
)

// The first commit fails, or is made and loses its answer: the caller cannot tell which. Transact looks for the
// record before it works again, so the balance changes once. The database is a fake: with PostgreSQL it is a
// pgxstore.
func ExampleFaultTxStore() {
	ctx := context.Background()
	key := everonce.Key{Scope: "deposits", ID: "transfer-1"}
	for _, fault := range []Fault{FailBefore, FailAfter} {
		db := mapdb.New()
		recv, err := everonce.NewTxReceiver(FaultTxStore[*mapdb.Tx](db, At(OpCommit, 1, fault)), nil)
		if err != nil {
			panic(err)
		}
		runs := 0
		for range 2 {
			res, err := everonce.Transact(ctx, recv, key, func(_ context.Context, tx *mapdb.Tx) (string, error) {
				runs++
				return "booked", tx.Add("transfer-1")
			})
			fmt.Println(res.Outcome, res.Value, err)
		}
		fmt.Printf("commit %v: the work ran %d times, %d booked\n", fault, runs, db.Count("transfer-1"))
	}
	// Output:
	// executed booked <nil>
	// replayed booked <nil>
	// commit failed before: the work ran 2 times, 1 booked
	// executed booked <nil>
	// replayed booked <nil>
	// commit answer lost: the work ran 1 times, 1 booked
}
