package everonce_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/store/memstore"
)

// A client that polls is told what is known, and nothing is claimed for it.
func ExampleLookup() {
	ctx := context.Background()
	r, err := everonce.NewReceiver(memstore.New(nil), everonce.Refuse, nil)
	if err != nil {
		panic(err)
	}
	key := everonce.Key{Scope: "charges", ID: "order-7"}
	poll := func() {
		res, err := everonce.Lookup[string](ctx, r, key)
		var e *everonce.Error
		switch {
		case err == nil:
			fmt.Println("done:", res.Value)
		case errors.Is(err, everonce.ErrNotFound), errors.Is(err, everonce.ErrReleased):
			fmt.Println("send it, or send it again")
		case errors.Is(err, everonce.ErrInProgress) && errors.As(err, &e):
			fmt.Println("in progress, ask again in", e.RetryAfter)
		default:
			fmt.Println(err)
		}
	}

	poll()
	_, err = everonce.Do(ctx, r, key, func(context.Context, *everonce.Attempt) (string, error) {
		poll()
		return "receipt-1", nil
	})
	if err != nil {
		panic(err)
	}
	poll()
	// Output:
	// send it, or send it again
	// in progress, ask again in 1s
	// done: receipt-1
}
