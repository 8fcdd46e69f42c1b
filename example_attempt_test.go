package everonce_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/store/memstore"
)

// A client of another system, deep below the work, finds the key to call it with in its context.
func ExampleAttemptFrom() {
	ctx := context.Background()
	r, err := everonce.NewReceiver(memstore.New(nil), everonce.Reexecute, nil)
	if err != nil {
		panic(err)
	}

	post := func(ctx context.Context, path string) {
		if a, ok := everonce.AttemptFrom(ctx); ok {
			fmt.Println("POST", path, "Idempotency-Key:", a.DownstreamKey(path))
			return
		}
		fmt.Println("POST", path)
	}
	post(ctx, "/ping")
	_, err = everonce.Do(ctx, r, everonce.Key{Scope: "charges", ID: "order-7"}, func(ctx context.Context, _ *everonce.Attempt) (string, error) {
		post(ctx, "/charge")
		post(ctx, "/mail")
		return "", nil
	})
	fmt.Println(err)
	// Output:
	// POST /ping
	// POST /charge Idempotency-Key: dc85a06e4aa9cc364639b3404a6b67bc
	// POST /mail Idempotency-Key: 62d946285e77ba3a52929b3d27efa920
	// <nil>
}

// Every attempt of an operation gives the other side the same key, so that it can tell the second call for
// a repetition of the first. Every effect has its own.
func ExampleAttempt_DownstreamKey() {
	ctx := context.Background()
	r, err := everonce.NewReceiver(memstore.New(nil), everonce.Reexecute, nil)
	if err != nil {
		panic(err)
	}
	order := func(_ context.Context, a *everonce.Attempt) (string, error) {
		fmt.Println("attempt", a.Number(), "charge", a.DownstreamKey("charge")[:8], "mail", a.DownstreamKey("mail")[:8])
		if a.Previous().State == 0 {
			return "", errors.New("timeout")
		}
		return "placed", nil
	}
	for range 2 {
		res, err := everonce.Do(ctx, r, everonce.Key{Scope: "orders", ID: "order-7"}, order)
		fmt.Println(res.Outcome, res.Value, err)
	}
	// Output:
	// attempt 1 charge c1ba211d mail e938118c
	// failed  timeout
	// attempt 2 charge c1ba211d mail e938118c
	// executed placed <nil>
}

// A later attempt sees what the earlier ones have done, and takes back what is no longer wanted.
func ExampleAttempt_Steps() {
	ctx := context.Background()
	r, err := everonce.NewReceiver(memstore.New(nil), everonce.Refuse, &everonce.Options{EffectsInSteps: true})
	if err != nil {
		panic(err)
	}

	soldOut := false
	book := func(ctx context.Context, a *everonce.Attempt) (string, error) {
		if soldOut {
			for _, s := range a.Steps() {
				fmt.Println("attempt", s.Attempt, "left the", s.Name, s.State)
			}
			return "cancelled", nil
		}
		if _, err := everonce.Step(ctx, a, "flight", func(context.Context) (string, error) { return "seat 12A", nil }); err != nil {
			return "", err
		}
		return everonce.Step(ctx, a, "hotel", func(context.Context) (string, error) {
			return "", everonce.NotDone(errors.New("no room is free"))
		})
	}
	for range 2 {
		res, err := everonce.Do(ctx, r, everonce.Key{Scope: "trips", ID: "7"}, book)
		fmt.Println(res.Outcome, res.Value, err)
		soldOut = true
	}
	// Output:
	// failed  step "hotel": no room is free
	// attempt 1 left the flight done
	// attempt 1 left the hotel not_done
	// executed cancelled <nil>
}

// The caller has hung up, and the work must not stop halfway: what has begun is finished under a context
// that ends with the attempt only.
func ExampleAttempt_Detached() {
	ctx, hangUp := context.WithCancel(context.Background())
	r, err := everonce.NewReceiver(memstore.New(nil), everonce.Refuse, nil)
	if err != nil {
		panic(err)
	}

	var detached context.Context
	res, err := everonce.Do(ctx, r, everonce.Key{Scope: "transfers", ID: "7"}, func(ctx context.Context, a *everonce.Attempt) (string, error) {
		hangUp() // after the money was taken from the one account
		detached = a.Detached()
		fmt.Println("caller:", ctx.Err(), "detached:", detached.Err())
		return "given to the other", nil
	})
	fmt.Println(res.Outcome, res.Value, err)
	fmt.Println(context.Cause(detached))
	// Output:
	// caller: context canceled detached: <nil>
	// executed given to the other <nil>
	// everonce: attempt has ended
}
