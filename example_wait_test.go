package everonce_test

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/store/memstore"
)

// A duplicate that comes while the first delivery is at work waits for its answer, instead of being told
// to come back.
func ExampleWithWait() {
	ctx := context.Background()
	r, err := everonce.NewReceiver(memstore.New(nil), everonce.Refuse, nil)
	if err != nil {
		panic(err)
	}
	key := everonce.Key{Scope: "charges", ID: "order-7"}

	started, duplicate := make(chan struct{}), make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		res, err := everonce.Do(ctx, r, key, func(context.Context, *everonce.Attempt) (string, error) {
			close(started)
			<-duplicate
			return "receipt-1", nil
		})
		if err != nil || res.Outcome != everonce.Executed {
			panic(err)
		}
	})

	<-started
	res, err := everonce.Do(ctx, r, key, nothing)
	fmt.Println(res.Outcome, err != nil)
	close(duplicate)
	res, err = everonce.Do(ctx, r, key, nothing, everonce.WithWait(time.Minute))
	fmt.Println(res.Outcome, res.Value, err)
	wg.Wait()
	// Output:
	// in_progress true
	// replayed receipt-1 <nil>
}

func nothing(context.Context, *everonce.Attempt) (string, error) { panic("the first one has it") }
