package janitor_test

import (
	"context"
	"fmt"
	"time"

	"github.com/everonce/everonce/janitor"
	"github.com/everonce/everonce/store/memstore"
)

// A janitor removes expired results and records until its context ends.
func ExampleJanitor_Run() {
	store := memstore.New(nil)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()

	round := make(chan struct{}, 1)
	j, err := janitor.New(store, &janitor.Options{
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
	done := make(chan error, 1)
	go func() { done <- j.Run(ctx) }()
	<-round // the first round runs at once

	cancel()
	fmt.Println("stopped:", <-done)
	// Output:
	// removed 0 records and 0 results: <nil>
	// stopped: <nil>
}
