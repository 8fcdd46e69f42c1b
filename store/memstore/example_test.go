package memstore_test

import (
	"context"
	"fmt"
	"time"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/store/memstore"
)

// A test sees what becomes of a key after a day and after two, and waits for neither.
func ExampleNew() {
	ctx := context.Background()
	now := time.Date(2026, time.March, 1, 9, 0, 0, 0, time.UTC)
	store := memstore.New(&memstore.Options{
		MaxRecords: 1000,
		Now:        func() time.Time { return now },
	})
	r, err := everonce.NewReceiver(store, everonce.Refuse, nil)
	if err != nil {
		panic(err)
	}
	for range 4 {
		res, err := everonce.Do(ctx, r, everonce.Key{Scope: "charges", ID: "order-7"},
			func(context.Context, *everonce.Attempt) (string, error) { return now.Format(time.DateOnly), nil })
		fmt.Println(res.Outcome, res.Value, err)
		now = now.Add(20 * time.Hour)
	}
	// Output:
	// executed 2026-03-01 <nil>
	// replayed 2026-03-01 <nil>
	// expired  everonce: completed, result expired (key 4d3a1f55da85094c)
	// executed 2026-03-03 <nil>
}
