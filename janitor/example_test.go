package janitor_test

import (
	"context"
	"fmt"
	"time"

	"github.com/everonce/everonce/janitor"
	"github.com/everonce/everonce/store/memstore"
)

// A janitor removes what is remembered no longer, until its context ends.
func ExampleStart() {
	store := memstore.New(nil)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()

	round := make(chan struct{}, 1)
	done, err := janitor.Start(ctx, store, &janitor.Options{
		Every: 10 * time.Minute,
		Report: func(res janitor.Result, err error) {
			fmt.Println("removed", res.Records, "records and", res.Results, "results:", err)
			select {
			case round <- struct{}{}:
			default:
			}
		},
	})
	if err != nil {
		panic(err)
	}
	<-round // the first one is at once

	cancel()
	<-done
	// Output: removed 0 records and 0 results: <nil>
}
